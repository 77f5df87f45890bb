"""A drafter whose drafts have a shape that is planned before anything is drafted."""

from typing import Protocol

from decoding.draft import Drafter
from decoding.estimation.cost import TreeSize
from decoding.tree_shape import TreeShape


class PlannedDrafter(Drafter, Protocol):
    """Drafts trees of a planned shape, and asks no keep_on."""

    @property
    def largest(self) -> TreeSize:
        """Size of the largest draft."""
        ...

    def plan(self, shape: TreeShape) -> None:
        """Draft in this shape from the next proposal on, cut to the largest."""
        ...
