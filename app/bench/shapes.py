"""Describes how often each shape of draft was used."""

from collections.abc import Mapping

from app.percentage import percentage
from decoding.shape import Shape

_ORDER = (Shape.LINE, Shape.PATHS, Shape.TREE, Shape.NONE)


def shape_shares(steps: Mapping[Shape, int]) -> str:
    """The share of steps by shape; empty without a step."""
    total = sum(steps.values())
    return ", ".join(
        f"{shape} {percentage(steps[shape], total)} %" for shape in _ORDER if steps.get(shape)
    )
