"""Costs under which every draft pays, for checks that are to see all that can be drafted."""

from decoding.cost import CostModel

_AGES = 1e9
"""Seconds of a plain step, beside which what a drafter takes is nothing."""


class NoCost(CostModel):
    """Passes that take as long whatever they hold, and go on doing so whatever is observed.

    largest: as in CostModel. As no clock counts, what is drafted depends on none.
    """

    def __init__(self, largest: int) -> None:
        super().__init__({1: _AGES, largest: _AGES})

    def observe(
        self, n: int, seconds: float, *, after_draft: bool = False, is_tree: bool = False
    ) -> None:
        """Learn nothing."""
