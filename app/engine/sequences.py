"""The sequences beside a session's own, in which programs are answered side by side."""

from collections.abc import Sequence

from backends.base import Context
from backends.base.model import SharedContext
from decoding.prefill import common_prefix


class Sequences:
    """Sequences in the cells of one context. Those of past replies wait for prompts that go on.

    own: the context, which is the session's own sequence.
    """

    def __init__(self, own: SharedContext) -> None:
        self.own = own
        self.idle: list[Context] = []
        """Those of past replies, the latest last."""
        self._reserved: dict[Context, int] = {}
        """Cells that replies in progress may come to hold."""

    @property
    def is_own_free(self) -> bool:
        """Whether no reply is in progress in the session's own sequence."""
        return self.own not in self._reserved

    def reserve(self, need: int) -> bool:
        """Reserve cells for a reply in the session's own sequence; False while there is no room."""
        if is_possible := self._make_room(need, held=self.own.length):
            self._reserved[self.own] = need
        return is_possible

    def take(self, prompt: Sequence[int], need: int) -> Context | None:
        """A sequence that begins as a prompt does, as far as any known one; None without room.

        need: cells of prompt and reply. They are reserved: nothing that runs ever lacks room.
        """
        known = dict.fromkeys((*self.idle, self.own, *self._reserved), 0)
        for one in known:
            known[one] = min(common_prefix(one.tokens, prompt), len(prompt) - 1)
        source = max(known, key=lambda one: known[one])
        shared = known[source]
        if source in self.idle and 2 * shared >= source.length:  # the same chat goes on
            self.idle.remove(source)
            if not self._make_room(need, held=source.length):
                self.idle.append(source)
                return None
            source.truncate(source.rollback_to(shared))
            taken = source
        else:
            if not self._make_room(need, opens=True, spared=source):
                return None
            taken = self.own.fork(source, shared)
        self._reserved[taken] = need
        return taken

    def give_back(self, sequence: Context) -> None:
        """Keep the sequence of a reply that has ended, for a prompt that goes on from there."""
        del self._reserved[sequence]
        if sequence is not self.own:
            self.idle.append(sequence)

    def _make_room(
        self, need: int, *, held: int = 0, opens: bool = False, spared: Context | None = None
    ) -> bool:
        """Give up idle sequences, the oldest first, until so many more cells can be held.

        held: cells of the sequence that is to be used. opens: whether another is to be opened.
        spared: one that is not given up.
        """
        promised = sum(max(most - one.length, 0) for one, most in self._reserved.items())

        def has_room() -> bool:
            opened = len({self.own, *self.idle, *self._reserved}) + opens
            is_enough = self.own.free_cells + held - promised >= need
            return is_enough and opened <= self.own.max_sequences

        idle = [one for one in self.idle if one is not spared]
        while not has_room() and idle:
            oldest = idle.pop(0)
            self.idle.remove(oldest)
            oldest.close()
        return has_room()
