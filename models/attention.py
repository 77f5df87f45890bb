"""What a model's attention keeps for each token of a context: its key-value cache."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of one kind. window is in tokens, None where all of the context is attended to."""

    count: int
    kv_heads: int
    key_size: int
    value_size: int
    window: int | None = None

    @property
    def numbers_per_token(self) -> int:
        """Those in the keys and values of one token."""
        return self.count * self.kv_heads * (self.key_size + self.value_size)


@dataclass(frozen=True, slots=True)
class Attention:
    """All layers that keep keys and values; layers with a running state are left out.

    number_bytes: of one number. llama.cpp keeps half floats, MLX what the model computes in.
    """

    layers: tuple[Layers, ...]
    number_bytes: int = 2

    def cache_bytes(self, n_ctx: int, *, keeps_windows: bool = False) -> int:
        """Bytes of a cache for n_ctx tokens.

        keeps_windows: whether layers with a window keep no more than that. llama.cpp keeps the
        whole context there too, or it could not forget rejected tokens.
        """
        numbers = sum(
            kind.numbers_per_token * min(n_ctx, kind.window or n_ctx)
            if keeps_windows
            else kind.numbers_per_token * n_ctx
            for kind in self.layers
        )
        return numbers * self.number_bytes
