"""What a model's attention keeps for each token of a context: its key-value cache."""

from dataclasses import dataclass

_HALF_FLOAT_BYTES = 2


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of one kind. window is in tokens, None where all of the context is attended to."""

    count: int
    kv_heads: int
    key_size: int
    value_size: int
    window: int | None = None

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of one token in half floats."""
        per_layer = self.kv_heads * (self.key_size + self.value_size)
        return self.count * per_layer * _HALF_FLOAT_BYTES


@dataclass(frozen=True, slots=True)
class Attention:
    """All layers that keep keys and values; layers with a running state are left out."""

    layers: tuple[Layers, ...]

    def cache_bytes(self, n_ctx: int, *, keeps_windows: bool = False) -> int:
        """Bytes of a cache for n_ctx tokens.

        keeps_windows: whether layers with a window keep no more than that. llama.cpp keeps the
        whole context there too, or it could not forget rejected tokens.
        """
        return sum(
            kind.bytes_per_token * min(n_ctx, kind.window or n_ctx)
            if keeps_windows
            else kind.bytes_per_token * n_ctx
            for kind in self.layers
        )
