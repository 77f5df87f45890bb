"""Attention layers of a model, and the size of their KV cache."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of one kind. window: in tokens, None for full attention."""

    count: int
    kv_heads: int
    key_size: int
    value_size: int
    window: int | None = None

    @property
    def numbers_per_token(self) -> int:
        """Count of numbers in the keys and values of one token."""
        return self.count * self.kv_heads * (self.key_size + self.value_size)


@dataclass(frozen=True, slots=True)
class Attention:
    """All layers with keys and values, without those that keep a recurrent state.

    number_bytes: of a cached number; llama.cpp stores half floats unless told otherwise, MLX the
    model's own type.
    """

    layers: tuple[Layers, ...]
    number_bytes: float = 2
    shared: int = 0
    """Layers at the end that read the keys and values of others."""

    def cache_bytes(self, n_ctx: int) -> int:
        """Bytes of a cache for n_ctx tokens.

        Sliding-window layers count in full: the engines keep the whole context, so that rejected
        tokens can be dropped.
        """
        numbers = n_ctx * sum(kind.numbers_per_token for kind in self.layers)
        return round(numbers * self.number_bytes)
