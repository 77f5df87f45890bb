"""Whose turn it is to draft: for checks that are to see every drafter, and several lengths."""

from collections.abc import Sequence

from decoding.member import Member

_LENGTHS = (5, 3, 8, 4)
"""Tokens of a draft, in turn, for each who proposes; replies that are looked at end within some."""


class Turns:
    """Says who may draft at a step, and how much: each alone, and the free ones together.

    The numbers of reply and step alone decide, nothing that was drawn. So replies that began with
    the same turn may be compared with the target's law by themselves.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        free = [member for member in members if member.cost is None]
        alone = [[member] for member in members]
        self._parties = [free, *alone] if len(free) > 1 else alone
        self._number = 0

    @property
    def count(self) -> int:
        """After so many steps, and so many replies, it is the same drafters' turn."""
        return len(self._parties)

    def start(self, reply: int) -> None:
        """The first draft of a reply is that turn's which is its number modulo count."""
        self._number = reply

    def next(
        self, free: Sequence[Member], dear: Sequence[Member], limit: int
    ) -> tuple[list[Member], list[Member], int]:
        """Those whose turn it is at this step, of those who could draft, and their limit."""
        turn = self._number % self.count
        length = _LENGTHS[self._number // self.count % len(_LENGTHS)]
        self._number += 1
        party = self._parties[turn]
        return (
            [member for member in free if member in party],
            [member for member in dear if member in party],
            min(limit, length * len(party)),
        )
