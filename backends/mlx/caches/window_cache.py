"""Cache of a sliding-window layer that can be rolled back."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from typing import Any

from mlx_lm.models.base import create_causal_mask
from mlx_lm.models.cache import KVCache


class WindowKVCache(KVCache):
    """Keeps every token, whereas mlx-lm's RotatingKVCache overwrites those before the window.

    Only the mask applies the window, so that drafted tokens past it can be dropped.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def make_mask(
        self, count: int, window_size: int | None = None, return_array: bool = False
    ) -> Any:
        """Mask for count new tokens: None for all keys, "causal" for all earlier ones.

        window_size: the layer's own if the architecture gives it, otherwise the cache's.
        """
        window = window_size or self.window
        if self.offset + count > window or (return_array and count > 1):
            return create_causal_mask(count, self.offset, window_size=window)
        return "causal" if count > 1 else None
