"""Turns of drafters at no cost, for checks that need to see each at several draft lengths."""

from collections.abc import Sequence

from decoding.drafters.cascade import Cascade
from decoding.estimation.cost import CostModel, Measured
from decoding.events import Step
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter

_PLAIN_SECONDS = 1e9
"""Seconds of a plain step, beside which drafting time is negligible."""


class NoCost(CostModel):
    """Passes of equal cost, whatever their size and whatever is observed.

    largest: as in CostModel. Drafts do not depend on any clock.
    """

    def __init__(self, largest: int) -> None:
        super().__init__(Measured({1: _PLAIN_SECONDS, largest: _PLAIN_SECONDS}))

    def observe(
        self, n: int, seconds: float, *, after_draft: bool = False, is_tree: bool = False
    ) -> None:
        """Learn nothing."""


LENGTHS = (5, 3, 8, 4)
"""Draft lengths per proposing drafter, in turn; some reach past the replies that are checked."""


class TakingTurns(Controller):
    """A controller whose drafters take turns at every step, for checks.

    They draft as if that cost nothing, and nothing is learned, so that checks see every form of
    draft. Turns depend on the numbers of reply and step alone, never on sampled tokens. So replies
    that began with the same turn may be compared with the target's distribution as one sample.
    of: whose drafters. lengths: of the drafts; the next one applies once every drafter has had its
    turn.
    """

    def __init__(self, of: Controller, lengths: Sequence[int] = LENGTHS) -> None:
        drafters = [_as_new(managed) for managed in of.drafters]
        super().__init__(drafters, NoCost(of.costs.largest), of.n_vocab, lambda: 0.0, of.reader)
        self._in_turn = drafters
        self._lengths = lengths
        self._number = 0

    @property
    def period(self) -> int:
        """Of the turns, in steps and in replies."""
        return len(self._in_turn)

    def start(self, reply: int) -> None:
        self._number = reply

    def _participants(
        self, history: Sequence[int], limit: int
    ) -> tuple[Sequence[ManagedDrafter], Sequence[ManagedDrafter], int]:
        free, costly, limit = super()._participants(history, limit)
        drafter = self._in_turn[self._number % self.period]
        length = self._lengths[self._number // self.period % len(self._lengths)]
        self._number += 1
        return (
            [managed for managed in free if managed is drafter],
            [managed for managed in costly if managed is drafter],
            min(limit, length),
        )

    def observe(self, step: Step) -> None: ...


def _as_new(managed: ManagedDrafter) -> ManagedDrafter:
    """The same drafter with nothing learned; what drafts for its model does so at no cost too."""
    drafter = managed.drafter
    if isinstance(drafter, Cascade) and isinstance(drafter.below, Controller):
        drafter = drafter.over(TakingTurns(drafter.below))
    return managed.anew(drafter)
