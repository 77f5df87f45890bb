"""Views of a model with other layers in the place of its own."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import copy
import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

from mlx import nn

WithLayers = Callable[[nn.Module, str], Any]
"""Takes the place of the module that holds the layers: given a copy of it and their name there."""


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Layers of a model, empty if it does not say."""
    return list(cast("Sequence[nn.Module]", getattr(model, "layers", ())))


def with_layers(model: nn.Module, make: WithLayers) -> Any:
    """View of a model with what is made of the module that holds its layers as one list.

    None if it does not hold them as one list. All weights are shared.
    """
    held = layers_of(model)
    return _changed(model, held, make) if held else None


def _changed(module: nn.Module, held: list[nn.Module], make: WithLayers) -> Any:
    """Copy of a module, and of its children on the path to a list, with another list."""
    for key, value in module.items():
        if isinstance(value, nn.Module):
            changed = _changed(value, held, make)
            if changed is not None:
                view = copy.copy(module)
                view[key] = changed
                return view
        elif isinstance(value, list) and _are_same(cast("list[object]", value), held):
            return make(copy.copy(module), key)
    return None


def _are_same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))
