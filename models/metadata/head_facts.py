"""Facts of a head for its memory bill: layers that draft for one model beside its context."""

from pathlib import Path

from backends.base import ModelError
from backends.files.attention import Attention, Layers, head_attention
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from backends.files.gguf_header import parts, read_header, read_model
from backends.files.head_folders.head_folder import drafter_of_head, layout_of
from backends.files.head_folders.shapes import MAP
from backends.files.head_folders.stored_head import StoredHead, read_head
from backends.files.mlx_folder import MlxFolder
from models.metadata.memory_bill import (
    CHUNK,
    ModelFacts,
    facts_of,
    graph_size,
    mlx_settings,
    vocabulary_bytes,
)
from models.metadata.trained_drafters import drafter_of

HEAD_PASS = 64
"""Most tokens of a head's pass."""

_FLOAT = 4
_NOTHING = "it brings nothing that drafts"


def _of_folder(path: Path, target: Path) -> ModelFacts:
    """Facts of the head in a folder, as MLX runs it; path: the model's own for its own layers."""
    head, settings = read_head(path), mlx_settings(target)
    drafter = drafter_of_head(head)
    reason = drafter.fault if drafter else _NOTHING
    if drafter is None or reason:
        raise ModelError(f"{path.name} cannot draft", reason)
    try:
        layers, rows, feed_forward, weight_bytes = _shape(head, drafter, settings)
    except ValueError as error:
        raise ModelError(f"{path.name} cannot draft", str(error)) from error
    return ModelFacts(
        weight_bytes=weight_bytes,
        n_vocab=settings.count("vocab_size"),
        width=settings.count("hidden_size"),
        feed_forward=feed_forward,
        context_limit=0,
        attention=Attention(layers, settings.number_bytes),
        n_layers=drafter.layers,
        row_bytes=_FLOAT * drafter.width * rows,
        most_tokens=HEAD_PASS,
    )


def _shape(
    head: StoredHead, drafter: TrainedDrafter, target: MlxFolder
) -> tuple[tuple[Layers, ...], int, int, int]:
    """Layers with keys and values, rows kept of each token, inner width, and bytes of weights."""
    if (layout := layout_of(head, drafter.kind)) is not None:
        kept = layout.attention
        layers = Layers(drafter.layers, kept.kv_heads, kept.head_size, kept.head_size)
        loaded = [stored for name, stored in layout.names.items() if name != MAP]
        weights = sum(head.tensors[name].bytes for name in loaded)
        return (layers,), layout.n_taps, layout.feed_forward, weights
    if drafter.kind is TrainedKind.ASSISTANT:  # it reads the model's keys and values
        feed_forward = head.settings.part("text_config").count("intermediate_size")
        return (), 1, feed_forward, sum(tensor.bytes for tensor in head.tensors.values())
    heads = target.count("num_attention_heads")
    size = target.count("head_dim") or target.count("hidden_size") // max(heads, 1)
    layers = Layers(drafter.layers, target.count("num_key_value_heads", heads), size, size)
    return (layers,), 1, target.count("intermediate_size"), drafter.read_bytes


def head_facts(path: Path, target: Path) -> ModelFacts:
    """Facts of a head for a model: in a file, or in a folder, each perhaps the model's own.

    One in the model's own GGUF file has no weights beside it. Its context is as large as the
    model's, whatever it was trained for.

    Raises:
        ModelError: a file is missing or damaged, or brings no head.
    """
    if path.is_dir():
        return _of_folder(path, target)
    drafter, of_file = drafter_of(path), facts_of(path)
    if drafter is None:
        raise ModelError(f"{path.name} cannot draft", _NOTHING)
    header, tensors = read_model(path)
    own_vocab = next((one.shape[-1] for one in tensors if one.name == "output.weight"), 0)
    reads_cache = drafter.kind is TrainedKind.ASSISTANT
    return ModelFacts(
        weight_bytes=0 if path == target else of_file.weight_bytes,
        n_vocab=read_header(parts(target)[0]).n_vocab,
        width=of_file.width,
        feed_forward=of_file.feed_forward,
        context_limit=0,
        attention=Attention(()) if reads_cache else head_attention(header, drafter.layers),
        n_layers=drafter.layers,
        row_bytes=_FLOAT * drafter.width * max(len(drafter.target_layers), 1),
        most_rows=CHUNK if reads_cache else None,
        output_rows=_output_rows(drafter, facts_of(target)),
        most_tokens=1 if reads_cache else HEAD_PASS,
        own_vocab=own_vocab if drafter.kind is TrainedKind.EAGLE3 else 0,
        vocabulary_bytes=0 if path == target else vocabulary_bytes(header),
        graph=graph_size(header, len(tensors)),
    )


def _output_rows(drafter: TrainedDrafter, target: ModelFacts) -> int:
    """Rows of logits of a head's pass: of a block, or of a tree where its model verifies trees.

    Those of a tree are copied, as each of its levels takes a pass.
    """
    match drafter.kind:
        case TrainedKind.ASSISTANT:
            return 1
        case TrainedKind.EAGLE3:  # those that it reads leave rows too
            return HEAD_PASS if target.attention.state_layers else 2 * HEAD_PASS
        case TrainedKind.NEXT_TOKEN_LAYERS:
            return 1 if target.attention.state_layers else 2 * HEAD_PASS
        case _:
            return drafter.longest + 1
