"""A view of a model that runs without some of its layers, and shares everything with it."""

import copy
import operator
from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import CacheList, KVCache

from backends.base import DraftUnavailableError


class SkippedLayer(nn.Module):
    """Stands where a layer was, and passes on what it is given.

    The place is kept because architectures find their other layers by number: which ones look back
    over a window, and whose cache the attention mask is made from. That cache counts tokens here
    as well, two bytes for each.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        # Past nn.Module's own bookkeeping: its weights are not to count as the view's.
        object.__setattr__(self, "_layer", layer)

    def __getattr__(self, name: str) -> Any:
        """What an architecture asks of its layers, such as use_sliding."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_layer"], name)

    def __call__(self, hidden: mx.array, *others: Any, **named: Any) -> mx.array:
        batch, count = hidden.shape[:2]
        mark = mx.zeros((batch, 1, count, 1), dtype=mx.uint8)
        for one in (*others, *named.values()):
            _count(one, mark)
        return hidden


def _count(given: Any, mark: mx.array) -> None:
    """Put a token's mark into a cache; what else a layer is given is left alone."""
    if isinstance(given, KVCache):
        given.update_and_fetch(mark, mark)
    elif isinstance(given, CacheList):
        for one in given.caches:
            _count(one, mark)


def without_layers(model: nn.Module, skipped: Sequence[int]) -> nn.Module:
    """A model whose skipped layers do nothing; no weight is copied.

    Raises:
        DraftUnavailableError: its layers are not held as one list.
    """
    layers = list(cast(Sequence[nn.Module], getattr(model, "layers", ())))
    wanted = [
        SkippedLayer(layer) if number in skipped else layer for number, layer in enumerate(layers)
    ]
    view = _exchanged(model, layers, wanted) if layers else None
    if view is None:
        raise DraftUnavailableError(
            "layers cannot be skipped", f"{type(model).__module__} does not hold them as one list"
        )
    return view


def _exchanged(
    module: nn.Module, held: list[nn.Module], wanted: list[nn.Module]
) -> nn.Module | None:
    """A copy of a module, and of those on the way to a list that it holds, with another list."""
    for key, value in module.items():
        found = None
        if isinstance(value, nn.Module):
            found = _exchanged(value, held, wanted)
        elif isinstance(value, list) and _are_same(cast(list[object], value), held):
            found = wanted
        if found is not None:
            view = copy.copy(module)
            view[key] = found
            return view
    return None


def _are_same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))
