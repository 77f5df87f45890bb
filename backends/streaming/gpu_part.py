"""What of a model's weights goes to GPUs and what stays with the processor.

As llama.cpp divides them (load_tensors in src/llama-model.cpp, n_gpu_layers): the output head with
its norms goes first, then the last layers, and the input embedding always stays. An embedding that
is the head too is copied to the GPU.
"""

from dataclasses import dataclass, replace

from backends.streaming.weight_layout import PlacedTensor, Role, WeightLayout

_INPUT = ("token_embd", "per_layer_token_embd", "position_embd", "token_types")
"""How the names of tensors before the first layer begin."""


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Bytes of a layer or of the output head: stored, and read by a pass over one token."""

    stored: int
    read: int


def layer_bytes(layout: WeightLayout) -> tuple[LayerBytes, ...]:
    """Bytes of each layer, and of the output head as the last."""
    layers = range(layout.n_layers + 1)
    stored, read = [0 for _ in layers], [0 for _ in layers]
    for tensor in layout.tensors:
        at = _layer(tensor, layout.n_layers)
        if at is not None:
            stored[at] += tensor.extent.size
            read[at] += round(tensor.extent.size * layout.share(tensor.role))
    return tuple(LayerBytes(*each) for each in zip(stored, read, strict=True))


def on_gpu(layout: WeightLayout, gpu_layers: int) -> tuple[PlacedTensor, ...]:
    """Tensors that only GPUs use. gpu_layers: as the engine counts them, the head as the first."""
    first = _first(layout, gpu_layers)
    return tuple(
        one
        for one in layout.tensors
        if not _is_input(one) and (at := _layer(one, layout.n_layers)) is not None and at >= first
    )


def beside_gpu(layout: WeightLayout, gpu_layers: int) -> WeightLayout:
    """The layout of what stays with the processor: the first layers, and the input embedding.

    gpu_layers: as the engine counts them, the head as the first.
    """
    if not gpu_layers:
        return layout
    gone = {one.name for one in on_gpu(layout, gpu_layers)}
    tensors = tuple(
        replace(one, role=Role.ROWS) if _is_input(one) else one
        for one in layout.tensors
        if one.name not in gone
    )
    n_layers = min(_first(layout, gpu_layers), layout.n_layers)
    return replace(layout, tensors=tensors, n_layers=n_layers)


def _first(layout: WeightLayout, gpu_layers: int) -> int:
    """First layer on a GPU; n_layers stands for the head, and one more for none."""
    return max(layout.n_layers + 1 - gpu_layers, 0)


def _layer(tensor: PlacedTensor, n_layers: int) -> int | None:
    """Layer of a tensor, n_layers for one of the head; None for one that is only looked up."""
    if tensor.layer is not None:
        return min(tensor.layer, max(n_layers - 1, 0))
    is_looked_up = _is_input(tensor) and tensor.role is not Role.SHARED
    return None if is_looked_up else n_layers


def _is_input(tensor: PlacedTensor) -> bool:
    return tensor.layer is None and tensor.name.startswith(_INPUT)
