"""Counts tokens of texts on the engine's thread, between two steps."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from backends.base import Tokenizer

CountTokens = Callable[[str], Future[int]]
"""Counts the tokens of a text in the background."""

_SHARE = 0.02
"""Most of an answer's time that counting may take."""


class TokenCounts:
    """A queue of texts to count: any thread may `ask`, the engine's thread counts."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._waiting: deque[tuple[str, Future[int]]] = deque()
        self._clock = clock
        self._next_at = float("-inf")
        """When an answer may be delayed by a count again."""

    def ask(self, text: str) -> Future[int]:
        """Request the number of tokens of a text."""
        future: Future[int] = Future()
        self._waiting.append((text, future))
        return future

    def count_all(self, tokenizer: Tokenizer) -> None:
        """Count all queued texts."""
        while self._waiting:
            self._count_next(tokenizer)

    def count_beside(self, tokenizer: Tokenizer) -> None:
        """Count queued texts beside an answer, as long as they take little of its time."""
        while self._waiting and (began := self._clock()) >= self._next_at:
            self._count_next(tokenizer)
            ended = self._clock()
            self._next_at = ended + (ended - began) / _SHARE

    def _count_next(self, tokenizer: Tokenizer) -> None:
        text, future = self._waiting.popleft()
        if future.set_running_or_notify_cancel():  # a cancelled one is not counted
            future.set_result(len(tokenizer.encode(text, special=False)))
