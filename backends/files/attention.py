"""What each layer of a model keeps of every token: keys and values, in the engines' caches."""

from dataclasses import dataclass

from backends.base import ModelError
from backends.files.gguf_header import GgufHeader
from backends.files.gguf_state import keeps_cache, keeps_state

_MOST_LAYERS = 1 << 12

_INDEXED = frozenset({"deepseek32", "dots3note", "glm-dsa", "glm5-next", "hy_v4", "qwen4exp"})
"""Architectures whose layers keep a key more of each token, and choose by it what they read."""

_SHARED_INDEX = 1 << 20
"""Context from which GLM's layers share the choice of one in four, where the file lists none."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of one kind. window: in tokens, None for full attention.

    index_size: numbers of a token beside its keys and values. has_state: whether they keep a
    running state.
    """

    count: int
    kv_heads: int
    key_size: int
    value_size: int
    window: int | None = None
    index_size: int = 0
    has_state: bool = False

    @property
    def numbers_per_token(self) -> int:
        """Count of numbers that they keep of one token."""
        return self.count * (self.kv_heads * (self.key_size + self.value_size) + self.index_size)


@dataclass(frozen=True, slots=True)
class Attention:
    """All layers of a model; those of a GGUF file one by one, in their order.

    number_bytes: of a cached number; llama.cpp stores half floats unless told otherwise, MLX the
    model's own type.
    """

    layers: tuple[Layers, ...]
    number_bytes: float = 2

    @property
    def numbers_per_token(self) -> int:
        """Count of numbers kept of one token."""
        return sum(kind.numbers_per_token for kind in self.layers)

    @property
    def state_layers(self) -> int:
        """Layers with a running state."""
        return sum(kind.count for kind in self.layers if kind.has_state)

    def cache_bytes(self, n_ctx: int) -> int:
        """Bytes of a cache for n_ctx tokens.

        Sliding-window layers count in full: the engines keep the whole context, so that rejected
        tokens can be dropped.
        """
        return round(n_ctx * self.numbers_per_token * self.number_bytes)


def attention_of(header: GgufHeader) -> Attention:
    """What llama.cpp keeps of each layer of a GGUF model.

    Of MLA a row of keys alone, which the values are a part of. Sources: load_hparams and
    create_memory of src/llama-model.cpp, src/llama-kv-cache.cpp.

    Raises:
        ModelError: the number of layers is absurd.
    """
    count = header.integer("block_count")
    if not 0 <= count <= _MOST_LAYERS:
        raise ModelError("the file is damaged", f"it has {count:,} layers")
    heads = header.by_layer("attention.head_count", count)
    kv_heads = header.by_layer("attention.head_count_kv", count, heads)
    if header.architecture == "graniteswitch" and kv_heads:
        kv_heads[-1] += 1  # a layer of the engine's own, which chooses an adapter
    loops = max(header.integer("num_loops", 1), 1)  # Nanbeige runs its layers again
    size = header.integer("embedding_length") // heads[0] if heads and heads[0] > 0 else 0
    full = header.integer("attention.key_length", size), _value_size(header, "", size)
    key_swa = header.integer("attention.key_length_swa", full[0])
    windowed = key_swa, _value_size(header, "_swa", full[1])
    window, pattern = header.integer("attention.sliding_window") or None, _windows(header, count)
    caches, states = keeps_cache(header), keeps_state(header)
    indices = _index_sizes(header, count, full[1])
    return Attention(
        tuple(
            Layers(
                1,
                kv_heads[layer] * loops if caches[layer] else 0,
                *(windowed if pattern[layer] else full),
                window if pattern[layer] else None,
                indices[layer] if caches[layer] else 0,
                states[layer],
            )
            for layer in range(count)
        )
    )


def _value_size(header: GgufHeader, ending: str, default: int) -> int:
    is_mla = header.integer("attention.key_length_mla") and header.integer(
        "attention.value_length_mla"
    )
    return 0 if is_mla else header.integer(f"attention.value_length{ending}", default)


def _windows(header: GgufHeader, count: int) -> list[bool]:
    """Whether each layer sees a window: as listed, or all but the last of so many."""
    listed = header.integers("attention.sliding_window_pattern")
    period = header.integer("attention.sliding_window_pattern")
    if not listed and period > 0:
        return [layer % period < period - 1 for layer in range(count)]
    return [bool(one) for one in (*listed, *[0] * count)][:count]


def _index_sizes(header: GgufHeader, count: int, value_size: int) -> list[int]:
    """Numbers that each layer's index keeps of a token."""
    size = header.integer("attention.indexer.key_length")
    if header.architecture == "minimax-m3":  # with values, which nothing reads
        dense = header.integer("leading_dense_block_count")
        return [(size + value_size) * (layer >= dense) for layer in range(count)]
    if header.architecture not in _INDEXED or not header.integer("attention.indexer.top_k"):
        return [0] * count
    if header.integer("attention.indexer.kpool"):
        size *= 3  # a key, its gate, and what it is pooled into
    listed = header.integers("attention.indexer.types")
    if not listed and header.integer("context_length") >= _SHARED_INDEX:
        listed = [layer < 2 or layer % 4 == 2 for layer in range(count)]
    return [size * bool(one) for one in (*(listed or [1] * count), *[0] * count)][:count]
