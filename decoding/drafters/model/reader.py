"""Catches a drafter's context up with the history."""

from collections.abc import Iterator, Sequence

from backends.base import Context, Logits
from decoding.prefill import common_prefix, prefill, reuse


class Reader:
    """Reads the part of a history that a context lacks; the history may end with guessed tokens.

    The context may hold rejected tokens of the last draft, or lack accepted ones. Committed tokens
    are compared once, guessed ones each time. single_reads: the most tokens that are read one by
    one, as where a pass of another width than the drafting ones costs more.
    """

    def __init__(self, context: Context) -> None:
        self.single_reads = 0
        self._context = context
        self._agreed = 0
        self._committed = 0

    def begin(self, history: Sequence[int]) -> None:
        """Start with a history that need not continue the previous one."""
        self._agreed = 0
        self._committed = len(history)

    def commit(self, history: Sequence[int]) -> None:
        """Mark the whole history as final."""
        self._committed = len(history)

    def backlog(self, history: Sequence[int]) -> int:
        """Number of tokens to read; the last one of the history always counts."""
        held = common_prefix(self._context.tokens, history, self._agreed)
        return len(history) - self._context.reachable(min(held, len(history) - 1))

    def room(self, history: Sequence[int]) -> int:
        """Number of tokens for which the context has room after history."""
        return self._context.n_ctx - len(history)

    def refusal(self, history: Sequence[int], needed: int = 1) -> str:
        """Why no draft can follow history; empty if there is room for the needed tokens."""
        return full(self._context) if self.room(history) < needed else ""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Read all of history if one more token would fit; yields tokens held after each chunk."""
        if len(history) < self._context.n_ctx:
            for held, _ in self.rows(history, 0):
                yield held

    def rows(self, history: Sequence[int], n_logits: int = 1) -> Iterator[tuple[int, Logits]]:
        """Read all of history in chunks; yields (tokens held, logits), the last with n_logits rows.

        n_logits: 1, or 0 where none is asked for.
        """
        reuse(self._context, history, self._agreed)
        self._note()
        while 1 < len(history) - self._context.length <= self.single_reads:
            self._context.forward(history[self._context.length :][:1], 1)
        for held, rows in prefill(self._context, history, n_logits):
            self._note()
            self._hold(is_brief=held == len(history))
            yield held, rows

    def pending(self, history: Sequence[int], most: int) -> Sequence[int]:
        """Read history except for its last tokens, 1 to most of them, which are returned."""
        reuse(self._context, history, self._agreed)
        for _ in prefill(self._context, history[:-most], 0):
            pass
        self._note()
        self._hold(is_brief=True)
        return history[self._context.length :]

    def rest(self) -> None:
        """Nothing to settle: rejected tokens of a line are taken back when it is read on."""

    def _hold(self, *, is_brief: bool) -> None:
        """Come back here after drafts, which are longer than what one pass can take back."""
        if self._context.length <= self._committed:
            self._context.checkpoint(is_brief=is_brief)

    def _note(self) -> None:
        self._agreed = min(self._context.length, self._committed)


def full(context: Context) -> str:
    """Reason shown for a drafter whose context is full."""
    return f"full: its context is {context.n_ctx:,} tokens"
