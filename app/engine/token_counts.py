"""Counts tokens of texts on the engine's thread, between two steps."""

from collections import deque
from concurrent.futures import Future

from backends.base import Tokenizer


class TokenCounts:
    """A queue of texts to count: any thread may `ask`, the engine's thread runs `count`."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, Future[int]]] = deque()

    def ask(self, text: str) -> Future[int]:
        """Request the number of tokens of a text."""
        future: Future[int] = Future()
        self._waiting.append((text, future))
        return future

    def count(self, tokenizer: Tokenizer) -> None:
        """Count all queued texts."""
        while self._waiting:
            text, future = self._waiting.popleft()
            future.set_result(len(tokenizer.encode(text, special=False)))
