"""A cost model under which every draft pays, for checks that need to see all drafts."""

from decoding.estimation.cost import CostModel

_PLAIN_SECONDS = 1e9
"""Seconds of a plain step, beside which drafting time is negligible."""


class NoCost(CostModel):
    """Passes of equal cost, whatever their size and whatever is observed.

    largest: as in CostModel. Drafts do not depend on any clock.
    """

    def __init__(self, largest: int) -> None:
        super().__init__({1: _PLAIN_SECONDS, largest: _PLAIN_SECONDS})

    def observe(
        self, n: int, seconds: float, *, after_draft: bool = False, is_tree: bool = False
    ) -> None:
        """Learn nothing."""
