"""Facts of a model for its memory bill, from its files or the catalogue."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.base import ModelError
from backends.engines.backend_names import LLAMACPP, MLX
from backends.files.gguf_header import GgufHeader, parts, read_header
from backends.files.mlx_folder import MlxFolder, read_mlx_folder
from backends.files.mlx_gguf import read_settings
from models.attention import Attention, Layers
from models.catalogue import Entry

_MAX_LAYERS = 1 << 12
_UNKNOWN_WIDTH = 4096


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Dimensions of a model; weight_bytes in bytes, context_limit in tokens; 0 if unknown."""

    weight_bytes: int
    n_vocab: int
    width: int
    feed_forward: int
    context_limit: int
    attention: Attention
    n_layers: int = 0
    """All layers, including those without attention."""
    active_experts: int | None = None
    """Experts used per token, 0 in a model without experts, None if unknown."""


def facts_of(path: Path, backend: str = LLAMACPP) -> ModelFacts:
    """Read a GGUF file with all its parts, or an MLX folder.

    backend: the one that will run it; they store a GGUF file and its cache in different types.

    Raises:
        ModelError: it is missing, damaged, inconsistent, or not for this backend.
    """
    if path.is_dir():
        facts = _of_folder(read_mlx_folder(path))
    else:
        facts = _of_folder(read_settings(path)) if backend == MLX else _of_file(path)
    figures = [facts.width, facts.feed_forward, facts.n_vocab, facts.context_limit]
    for kind in facts.attention.layers:
        figures += [kind.kv_heads, kind.key_size, kind.value_size, kind.window or 0]
    if min(figures) < 0:
        raise ModelError(f"{path} is damaged", "it has negative dimensions")
    return facts


def _of_file(path: Path) -> ModelFacts:
    headers = [read_header(part) for part in parts(path)]
    weights = sum(tensor.stored_bytes for header in headers for tensor in header.tensors)
    return _of_header(headers[0], weights)


def facts_of_entry(entry: Entry, quantization: str) -> ModelFacts | None:
    """Facts from the catalogue, None if it lacks the figures."""
    size = entry.size(quantization)
    if size is None or entry.attention is None:
        return None
    return ModelFacts(
        size.bytes, 0, _UNKNOWN_WIDTH, 4 * _UNKNOWN_WIDTH, entry.context, entry.attention
    )


def _of_header(header: GgufHeader, weight_bytes: int) -> ModelFacts:
    width = header.integer("embedding_length")
    return ModelFacts(
        weight_bytes=weight_bytes,
        n_vocab=header.n_vocab or header.integer("vocab_size"),
        width=width,
        feed_forward=max(
            header.integer("feed_forward_length"), *header.integers("feed_forward_length"), 0
        ),
        context_limit=header.integer("context_length"),
        attention=_attention_of_header(header, width),
        n_layers=header.integer("block_count"),
        active_experts=header.integer("expert_used_count"),
    )


def _attention_of_header(header: GgufHeader, width: int) -> Attention:
    """Attention of a GGUF model, equal layers merged."""
    count = header.integer("block_count")
    if not 0 <= count <= _MAX_LAYERS:
        raise ModelError("the file is damaged", f"it has {count:,} layers")
    n_heads = header.integer("attention.head_count") or max(
        header.integers("attention.head_count"), default=0
    )
    size = width // n_heads if n_heads > 0 else 0
    key_size = header.integer("attention.key_length", size)
    value_size = header.integer("attention.value_length", size)
    window = header.integer("attention.sliding_window") or None
    kv_heads = header.integer("attention.head_count_kv", n_heads)
    by_layer = header.integers("attention.head_count_kv") or [kv_heads] * count
    pattern = header.integers("attention.sliding_window_pattern")
    window_key = header.integer("attention.key_length_swa", key_size)
    window_value = header.integer("attention.value_length_swa", value_size)
    interval = header.integer("full_attention_interval")
    layers: list[Layers] = []
    for index, heads in enumerate(by_layer[:count]):
        if interval > 0 and (index + 1) % interval:
            continue  # it keeps a recurrent state
        in_window = bool(pattern[index]) if index < len(pattern) else False
        layers.append(
            Layers(1, heads, window_key, window_value, window)
            if in_window
            else Layers(1, heads, key_size, value_size)
        )
    return Attention(_merged(layers))


def _of_folder(folder: MlxFolder) -> ModelFacts:
    width, count = folder.count("hidden_size"), folder.count("num_hidden_layers")
    kinds = folder.layer_kinds or ("full_attention",) * count
    n_heads = folder.count("num_attention_heads")
    size = folder.count("head_dim") or (width // n_heads if n_heads else 0)
    kv_heads = folder.count("num_key_value_heads", n_heads)
    full_heads = folder.count("num_global_key_value_heads") or kv_heads
    full_size = folder.count("global_head_dim") or size
    full = Layers(kinds.count("full_attention"), full_heads, full_size, full_size)
    windowed = Layers(
        kinds.count("sliding_attention"),
        kv_heads,
        size,
        size,
        folder.count("sliding_window") or None,
    )
    return ModelFacts(
        weight_bytes=folder.weight_bytes,
        n_vocab=folder.count("vocab_size"),
        width=width,
        feed_forward=folder.count("intermediate_size"),
        context_limit=folder.count("max_position_embeddings"),
        attention=Attention(
            tuple(kind for kind in (full, windowed) if kind.count), folder.number_bytes
        ),
        n_layers=count,
        active_experts=folder.active_experts,
    )


def _merged(layers: Sequence[Layers]) -> tuple[Layers, ...]:
    """Merge equal layers."""
    counts: dict[Layers, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    return tuple(
        Layers(count, kind.kv_heads, kind.key_size, kind.value_size, kind.window)
        for kind, count in counts.items()
    )
