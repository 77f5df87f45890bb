"""A drafter whose drafts have a shape that is planned before anything is drafted."""

from dataclasses import dataclass
from typing import Protocol

from decoding.draft import Drafter
from decoding.estimation.cost import TreeSize
from decoding.tree_shape import TreeShape


@dataclass(frozen=True, slots=True)
class Growth:
    """How far a tree may grow beyond its planned shape, where its model is confident.

    nodes: the most it may have. least: joint probability from which a node is worth verifying.
    level: sum of joint probabilities from which it is worth expanding nodes in one more pass.
    """

    nodes: int
    least: float
    level: float


class PlannedDrafter(Drafter, Protocol):
    """Drafts trees of a planned shape, and asks no keep_on."""

    @property
    def largest(self) -> TreeSize:
        """Size of the largest draft."""
        ...

    def plan(self, shape: TreeShape, growth: Growth | None = None) -> None:
        """Draft in this shape from the next proposal on, cut to the largest.

        growth: instead, all nodes that are worth it, by a drafter that need not fix its shape.
        """
        ...
