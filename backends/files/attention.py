"""What each layer of a model keeps of every token: keys and values, in the engines' caches."""

from collections.abc import Sequence
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
    count = _count(header)
    caches, states = keeps_cache(header), keeps_state(header)
    return _attention(header, caches, states, _index_sizes(header, count))


def head_attention(header: GgufHeader, n_layers: int) -> Attention:
    """The same of a head in a GGUF file, of which it is the last layers.

    Raises:
        ModelError: the number of layers is absurd.
    """
    count = _count(header)
    own = [layer >= count - n_layers for layer in range(count)]
    return _attention(header, own, [False] * count, [0] * count)


def _count(header: GgufHeader) -> int:
    count = header.integer("block_count")
    if not 0 <= count <= _MOST_LAYERS:
        raise ModelError("the file is damaged", f"it has {count:,} layers")
    return count


def _attention(
    header: GgufHeader, caches: Sequence[bool], states: Sequence[bool], indices: Sequence[int]
) -> Attention:
    """Layers one by one: whether each has keys and values, and a state, and its index's numbers."""
    count = len(caches)
    heads = header.by_layer("attention.head_count", count)
    kv_heads = header.by_layer("attention.head_count_kv", count, heads)
    if header.architecture == "graniteswitch" and kv_heads:
        kv_heads[-1] += 1  # a layer of the engine's own, which chooses an adapter
    loops = max(header.integer("num_loops", 1), 1)  # Nanbeige runs its layers again
    full, windowed = _sizes(header, heads)
    window, pattern = header.integer("attention.sliding_window") or None, _windows(header, count)
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


def _sizes(header: GgufHeader, heads: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Numbers of a head's key and value, and of those in layers that see a window."""
    size = header.integer("embedding_length") // heads[0] if heads and heads[0] > 0 else 0
    key = header.integer("attention.key_length", size)
    value = header.integer("attention.value_length", size)
    key_swa = header.integer("attention.key_length_swa", key)
    value_swa = header.integer("attention.value_length_swa", value)
    mla = ("attention.key_length_mla", "attention.value_length_mla")
    has_values = not all(header.integer(one) for one in mla)
    return (key, value * has_values), (key_swa, value_swa * has_values)


def _windows(header: GgufHeader, count: int) -> list[bool]:
    """Whether each layer sees a window: as listed, or all but the last of so many."""
    listed = header.integers("attention.sliding_window_pattern")
    period = header.integer("attention.sliding_window_pattern")
    if not listed and period > 0:
        return [layer % period < period - 1 for layer in range(count)]
    return [bool(one) for one in (*listed, *[0] * count)][:count]


def _index_sizes(header: GgufHeader, count: int) -> list[int]:
    """Numbers that each layer's index keeps of a token."""
    size = header.integer("attention.indexer.key_length")
    if header.architecture == "minimax-m3":  # with values, which nothing reads
        dense = header.integer("leading_dense_block_count")
        (_, values), _ = _sizes(header, header.by_layer("attention.head_count", count))
        return [(size + values) * (layer >= dense) for layer in range(count)]
    if header.architecture not in _INDEXED or not header.integer("attention.indexer.top_k"):
        return [0] * count
    if header.integer("attention.indexer.kpool"):
        size *= 3  # a key, its gate, and what it is pooled into
    listed = header.integers("attention.indexer.types")
    if not listed and header.integer("context_length") >= _SHARED_INDEX:
        listed = [layer < 2 or layer % 4 == 2 for layer in range(count)]
    return [size * bool(one) for one in (*(listed or [1] * count), *[0] * count)][:count]
