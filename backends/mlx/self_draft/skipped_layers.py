"""View of a model that skips some of its layers and shares all weights."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import CacheList, KVCache

from backends.base import DraftUnavailableError
from backends.mlx.layer_lists import with_layers


class SkippedLayer(nn.Module):
    """Takes the place of a skipped layer and returns its input.

    Architectures find layers by index: those with sliding windows, and the one whose cache the
    attention mask is made from. So the cache of a skipped layer counts tokens too, at two bytes
    each.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        # Bypasses nn.Module's bookkeeping, so that its weights do not count as the view's.
        object.__setattr__(self, "_layer", layer)

    def __getattr__(self, name: str) -> Any:
        """Attribute that an architecture reads from its layers, such as use_sliding."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_layer"], name)

    def __call__(self, hidden: mx.array, *others: Any, **named: Any) -> mx.array:
        batch, count = hidden.shape[:2]
        mark = mx.zeros((batch, 1, count, 1), dtype=mx.uint8)
        for argument in (*others, *named.values()):
            _count(argument, mark)
        return hidden


def _count(argument: Any, mark: mx.array) -> None:
    """Add marks for new tokens to a cache; other arguments of a layer are ignored."""
    if isinstance(argument, KVCache):
        argument.update_and_fetch(mark, mark)
    elif isinstance(argument, CacheList):
        for cache in argument.caches:
            _count(cache, mark)


def without_layers(model: nn.Module, skipped: Sequence[int]) -> nn.Module:
    """View of a model whose skipped layers do nothing.

    Raises:
        DraftUnavailableError: its layers are not held as one list.
    """

    def skipping(body: nn.Module, name: str) -> nn.Module:
        body[name] = [
            SkippedLayer(layer) if number in skipped else layer
            for number, layer in enumerate(body[name])
        ]
        return body

    view = with_layers(model, skipping)
    if view is None:
        raise DraftUnavailableError(
            "layers cannot be skipped", f"{type(model).__module__} does not hold them as one list"
        )
    return view
