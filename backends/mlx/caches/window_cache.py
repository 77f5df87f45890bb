"""The cache of a layer that looks back over a window only, made so that it can be rolled back."""

from typing import Any

from mlx_lm.models.base import create_causal_mask
from mlx_lm.models.cache import KVCache


class WindowKVCache(KVCache):
    """Keeps every token, where mlx-lm's RotatingKVCache overwrites those before the window.

    The window is kept by the mask alone. What is drafted past it can then be forgotten.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def make_mask(
        self, count: int, window_size: int | None = None, return_array: bool = False
    ) -> Any:
        """What count tokens to come may look at: None is all, "causal" what came before.

        window_size: the layer's own, where the architecture tells it; else the cache's.
        """
        window = window_size or self.window
        if self.offset + count > window or (return_array and count > 1):
            return create_causal_mask(count, self.offset, window_size=window)
        return "causal" if count > 1 else None
