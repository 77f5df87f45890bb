"""Turns of drafters, for checks that are to see every one of them, and several lengths."""

from collections.abc import Sequence

from decoding.planning.managed_drafter import ManagedDrafter

LENGTHS = (5, 3, 8, 4)
"""Tokens of a draft by drafter that proposes, in turn; some reach past the replies checked."""


class Turns:
    """Decides who may draft at a step, and how much: each alone, and the free ones together.

    The numbers of reply and step alone decide, nothing that was drawn. So replies that began with
    the same turn may be compared with the target's distribution by themselves. lengths: of drafts,
    the next one when each had its turn.
    """

    def __init__(self, members: Sequence[ManagedDrafter], lengths: Sequence[int] = LENGTHS) -> None:
        free = [member for member in members if member.cost is None]
        alone = [[member] for member in members]
        self._lengths = lengths
        self._parties = [free, *alone] if len(free) > 1 else alone
        self._number = 0

    @property
    def count(self) -> int:
        """The period of the turns, in steps and in replies."""
        return len(self._parties)

    def start(self, reply: int) -> None:
        """Begin a reply with the turn that is its number modulo count."""
        self._number = reply

    def next(
        self, free: Sequence[ManagedDrafter], costly: Sequence[ManagedDrafter], limit: int
    ) -> tuple[list[ManagedDrafter], list[ManagedDrafter], int]:
        """The free and the costly drafters whose turn it is at this step, and their limit."""
        turn = self._number % self.count
        length = self._lengths[self._number // self.count % len(self._lengths)]
        self._number += 1
        party = self._parties[turn]
        return (
            [member for member in free if member in party],
            [member for member in costly if member in party],
            min(limit, length * len(party)),
        )
