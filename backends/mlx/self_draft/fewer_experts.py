"""View of a model that uses fewer experts per token and shares all weights."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

import copy
from typing import Any, cast

from mlx import nn

from backends.base import DraftUnavailableError

_COUNTS = ("top_k", "num_experts_per_tok")
"""Names of the number of active experts, in a router or in the layer with one."""


def with_fewer_experts(model: nn.Module, active: int, wanted: int) -> nn.Module:
    """View of a model whose routers choose wanted experts instead of active ones.

    Raises:
        DraftUnavailableError: no router has that number of active experts.
    """
    view = _changed(model, active, wanted)
    if view is model:
        raise DraftUnavailableError(
            "the number of experts cannot be reduced",
            f"{type(model).__module__} stores it elsewhere",
        )
    return view


def _changed(held: Any, active: int, wanted: int) -> Any:
    """Copy of a module with its changed children; unchanged modules are shared."""
    if not isinstance(held, nn.Module | dict | list):
        return held
    places = cast("Any", enumerate(held) if isinstance(held, list) else held.items())
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
    """Attributes of a module other than arrays and modules, which are its entries."""
    return vars(held) if isinstance(held, nn.Module) else {}
