"""The queue of requests: one is answered at a time, in the order in which they came."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from app.serve.refusal import RefusalKind, RefusedError, stopped


class Turns:
    """A bounded queue; used on the server's event loop alone.

    The engine has a queue of its own, in which a request that nobody waits for any more stays
    until its turn.
    """

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._current: Turn | None = None
        self._waiting: deque[Turn] = deque()
        self.is_closed = False
        """Whether the server ends, and nobody's turn comes any more."""

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return len(self._waiting)

    @property
    def answering(self) -> int:
        """Requests that are answered."""
        return int(self._current is not None)

    def check_open(self) -> None:
        """Check that there is a place.

        Raises:
            RefusedError: the queue is full or closed.
        """
        if self.is_closed:
            raise stopped()
        if self._current is not None and len(self._waiting) >= self._most_waiting:
            what = f"{len(self._waiting)} requests wait already; try again later"
            raise RefusedError(RefusalKind.BUSY, what)

    def enter(self) -> "Turn":
        """A place at the end of the queue, to be left by its `with`.

        Raises:
            RefusedError: the queue is full or closed.
        """
        self.check_open()
        turn = Turn(self)
        self._waiting.append(turn)
        self._advance()
        return turn

    def close(self) -> None:
        """Let nobody enter, and nobody's turn come; whoever waits is to be told otherwise."""
        self.is_closed = True

    def leave(self, turn: "Turn") -> None:
        """Give up a place, wherever it is."""
        if self._current is turn:
            self._current = None
        elif turn in self._waiting:
            self._waiting.remove(turn)
        self._advance()

    def _advance(self) -> None:
        if self._current is None and self._waiting and not self.is_closed:
            self._current = self._waiting.popleft()
            self._current.come.set()


class Turn:
    """A place in the queue; come: set once it is its turn."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.come = asyncio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._turns.leave(self)
