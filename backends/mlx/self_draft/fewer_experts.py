"""A view of a model that sends each token to fewer experts, and shares everything with it."""

import copy
from typing import Any, cast

from mlx import nn

from backends.base import DraftUnavailableError

_COUNTS = ("top_k", "num_experts_per_tok")
"""What architectures call the number of experts, in a router or in the layer that has one."""


def with_fewer_experts(model: nn.Module, active: int, wanted: int) -> nn.Module:
    """A model whose routers choose wanted experts in place of active ones; no weight is copied.

    Raises:
        DraftUnavailableError: no router says that it chooses so many.
    """
    view = _changed(model, active, wanted)
    if view is model:
        raise DraftUnavailableError(
            "experts cannot be left out", f"{type(model).__module__} keeps their number elsewhere"
        )
    return view


def _changed(held: Any, active: int, wanted: int) -> Any:
    """A module with what it holds; modules in which nothing changes are the same objects."""
    if not isinstance(held, nn.Module | dict | list):
        return held
    places = cast(Any, enumerate(held) if isinstance(held, list) else held.items())
    changed: dict[Any, Any] = {}
    for key, value in places:
        new = _changed(value, active, wanted)
        if new is not value:
            changed[key] = new
    counts = [name for name in _COUNTS if _attributes(held).get(name) == active]
    if not changed and not counts:
        return held
    made = copy.copy(held)
    for key, value in changed.items():
        made[key] = value
    for name in counts:
        object.__setattr__(made, name, wanted)
    return made


def _attributes(held: Any) -> dict[str, Any]:
    """Those of a module that are neither arrays nor modules, which are its entries."""
    return vars(held) if isinstance(held, nn.Module) else {}
