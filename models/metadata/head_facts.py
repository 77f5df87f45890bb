"""Facts of a head for its memory bill: layers that draft for one model beside its context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.base import ModelError
from backends.files.attention import Attention, Layers, head_attention
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from backends.files.gguf_header import Tensor, parts, read_header
from backends.files.head_folders.block_layout import block_layout
from backends.files.head_folders.eagle3_layout import eagle3_layout
from backends.files.head_folders.head_folder import drafter_of_head
from backends.files.head_folders.shapes import MAP, AttentionShape
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

_STATE_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Shape:
    """Layers with keys and values. rows: kept of each of the model's tokens."""

    layers: tuple[Layers, ...]
    rows: int
    feed_forward: int
    weight_bytes: int


def folder_head_facts(path: Path, target: Path) -> ModelFacts:
    """Facts of the head in a folder for a model; path: the model's own, for its own layers."""
    head, settings = read_head(path), mlx_settings(target)
    drafter = drafter_of_head(head)
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
        row_bytes=_STATE_BYTES * drafter.width * shape.rows,
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


_FLOAT = 4


def head_facts(path: Path, target: Path) -> ModelFacts:
    """Facts of a head for a model: in a file, or in a folder, each perhaps the model's own.

    One in the model's own GGUF file has no weights beside it. Its context is as large as the
    model's, whatever it was trained for.

    Raises:
        ModelError: a file is missing or damaged, or brings no head.
    """
    if path.is_dir():
        return folder_head_facts(path, target)
    drafter, of_file = drafter_of(path), facts_of(path)
    if drafter is None:
        raise ModelError(f"{path.name} cannot draft", "it brings nothing that drafts")
    headers = [read_header(part) for part in parts(path)]
    header, tensors = headers[0], [one for part in headers for one in part.tensors]
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
        own_vocab=_own_vocab(tensors) if drafter.kind is TrainedKind.EAGLE3 else 0,
        vocabulary_bytes=0 if path == target else vocabulary_bytes(header),
        graph=graph_size(header, len(tensors)),
    )


def _own_vocab(tensors: Sequence[Tensor]) -> int:
    """Rows of an output matrix, of which each is of one token."""
    return next((one.shape[-1] for one in tensors if one.name == "output.weight"), 0)


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
