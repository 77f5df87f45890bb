"""A cost model under which every draft pays, for checks that are to see all kinds of drafts."""

from decoding.estimation.cost import CostModel

_AGES = 1e9
"""Seconds of a plain step, next to which the time of a drafter is nothing."""


class NoCost(CostModel):
    """Passes that take equally long whatever their size, and whatever is observed.

    largest: as in CostModel. What is drafted depends on no clock.
    """

    def __init__(self, largest: int) -> None:
        super().__init__({1: _AGES, largest: _AGES})

    def observe(
        self, n: int, seconds: float, *, after_draft: bool = False, is_tree: bool = False
    ) -> None:
        """Learn nothing."""
