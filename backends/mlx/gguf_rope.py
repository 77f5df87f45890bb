"""A rotary embedding whose frequencies a GGUF file gives, as Llama 3.1 and later have it."""

import mlx.core as mx
from mlx import nn


class StretchedRope(nn.Module):
    """Rotates halves of each head; frequency i is divided by factors[i], shape (width / 2,)."""

    def __init__(self, width: int, base: float, factors: mx.array) -> None:
        super().__init__()
        self._width = width
        self._wavelengths = base ** (mx.arange(0, width, 2) / width) * factors

    def __call__(self, x: mx.array, offset: int = 0) -> mx.array:
        return mx.fast.rope(
            x,
            self._width,
            traditional=False,
            base=None,
            scale=1.0,
            offset=offset,
            freqs=self._wavelengths,
        )
