"""A drafter whose drafts have a form that is settled before anything is drawn."""

from typing import Protocol

from decoding.cost import TreeSize
from decoding.draft import Drafter
from decoding.tree_shape import TreeShape


class PlannedDrafter(Drafter, Protocol):
    """It asks no keep_on: what it drafts was planned."""

    @property
    def largest(self) -> TreeSize:
        """The most that it drafts."""
        ...

    def plan(self, shape: TreeShape) -> None:
        """Draft in this form from the next proposal on, cut to what is the most."""
        ...
