"""Facts of a head in a folder of safetensors, for its memory bill: as MLX runs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backends.base import ModelError
from backends.files.attention import Attention, Layers
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from backends.files.head_folders.attention_shape import AttentionShape
from backends.files.head_folders.block_layout import block_layout
from backends.files.head_folders.drafted_tokens import MAP
from backends.files.head_folders.eagle3_layout import eagle3_layout
from backends.files.head_folders.folder_drafter import drafter_of
from backends.files.head_folders.stored_head import StoredHead, read_head
from backends.files.mlx_folder import MlxFolder
from models.metadata.mlx_settings import mlx_settings
from models.metadata.model_facts import ModelFacts

HEAD_PASS = 64
"""Most tokens of a head's pass."""

_FLOAT = 4


@dataclass(frozen=True, slots=True)
class _Shape:
    """Layers with keys and values. rows: kept of each of the model's tokens."""

    layers: tuple[Layers, ...]
    rows: int
    feed_forward: int
    weight_bytes: int


def folder_head_facts(path: Path, target: Path) -> ModelFacts:
    """Facts of the head in a folder for a model; path: the model's own, for its own layers.

    Raises:
        ModelError: a file is missing or damaged, or brings no head that can draft.
    """
    head, settings = read_head(path), mlx_settings(target)
    drafter = drafter_of(head)
    reason = drafter.fault if drafter else "it brings nothing that drafts"
    if drafter is None or reason:
        raise ModelError(f"{path.name} cannot draft", reason)
    try:
        shape = _shape(head, drafter, settings)
    except ValueError as error:
        raise ModelError(f"{path.name} cannot draft", str(error)) from error
    return ModelFacts(
        weight_bytes=shape.weight_bytes,
        n_vocab=settings.count("vocab_size"),
        width=settings.count("hidden_size"),
        feed_forward=shape.feed_forward,
        context_limit=0,
        attention=Attention(shape.layers, settings.number_bytes),
        n_layers=drafter.layers,
        row_bytes=_FLOAT * drafter.width * shape.rows,
        most_tokens=HEAD_PASS,
    )


def _shape(head: StoredHead, drafter: TrainedDrafter, target: MlxFolder) -> _Shape:
    match drafter.kind:
        case TrainedKind.EAGLE3:
            layout = eagle3_layout(head)
            layers = _layers(1, layout.attention)
            loaded = _bytes(head, layout.names)
            return _Shape((layers,), layout.n_taps, layout.feed_forward, loaded)
        case TrainedKind.DFLASH | TrainedKind.DSPARK:
            block = block_layout(head)
            layers = _layers(len(block.layers), block.attention)
            loaded = _bytes(head, block.names)
            return _Shape((layers,), len(block.taps), block.feed_forward, loaded)
        case TrainedKind.ASSISTANT:  # it reads the model's keys and values
            feed_forward = head.settings.part("text_config").count("intermediate_size")
            loaded = sum(tensor.bytes for tensor in head.tensors.values())
            return _Shape((), 1, feed_forward, loaded)
        case _:
            heads = target.count("num_attention_heads")
            width = target.count("hidden_size") // heads if heads else 0
            size = target.count("head_dim") or width
            layers = Layers(drafter.layers, target.count("num_key_value_heads", heads), size, size)
            return _Shape((layers,), 1, target.count("intermediate_size"), drafter.read_bytes)


def _layers(count: int, attention: AttentionShape) -> Layers:
    return Layers(count, attention.kv_heads, attention.head_size, attention.head_size)


def _bytes(head: StoredHead, names: Mapping[str, str]) -> int:
    """Bytes of the tensors that are loaded; names: as stored, by common name."""
    return sum(head.tensors[stored].bytes for name, stored in names.items() if name != MAP)
