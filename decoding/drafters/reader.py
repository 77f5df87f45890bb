"""Brings a drafter's context to the end of the history, with as little work as it allows."""

from collections.abc import Iterator, Sequence

from backends.base import Context, Logits
from decoding.prefill import common_prefix, prefill, reuse


class Reader:
    """Reads what a context lacks of a history, which may end with tokens that are only guessed.

    The context may hold rejected tokens of the last draft, or lack accepted ones. What was
    committed is compared once; guesses are compared again each time.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._agreed = 0
        self._committed = 0

    def begin(self, history: Sequence[int]) -> None:
        """A history that need not continue the one before."""
        self._agreed = 0
        self._committed = len(history)

    def commit(self, history: Sequence[int]) -> None:
        """What was said from here on is certain."""
        self._committed = len(history)

    def backlog(self, history: Sequence[int]) -> int:
        """Tokens it would have to read, the last of the history always among them."""
        held = common_prefix(self._context.tokens, history, self._agreed)
        return len(history) - min(held, len(history) - 1)

    def room(self, history: Sequence[int]) -> int:
        """How many tokens the context could take after history."""
        return self._context.n_ctx - len(history)

    def refusal(self, history: Sequence[int], needed: int = 1) -> str:
        """Why no draft can follow history; empty where needed tokens have room."""
        return full(self._context) if self.room(history) < needed else ""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Read all of history where a token more would fit; yields tokens held after each chunk."""
        if len(history) < self._context.n_ctx:
            for held, _ in self.rows(history):
                yield held

    def rows(self, history: Sequence[int]) -> Iterator[tuple[int, Logits]]:
        """Read all of history in chunks; yields (tokens held, logits), the last with one row."""
        reuse(self._context, history, self._agreed)
        self._note()
        for held, rows in prefill(self._context, history):
            self._note()
            yield held, rows

    def pending(self, history: Sequence[int], most: int) -> Sequence[int]:
        """Read history but for its last tokens, at least 1 and at most most, which are returned."""
        reuse(self._context, history, self._agreed)
        for _ in prefill(self._context, history[:-most]):
            pass
        self._note()
        return history[self._context.length :]

    def _note(self) -> None:
        self._agreed = min(self._context.length, self._committed)


def full(context: Context) -> str:
    """Why a drafter whose context has no room does not draft."""
    return f"full: its context is {context.n_ctx:,} tokens"
