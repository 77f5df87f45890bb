"""What texts cost in tokens, counted by the engine's thread between two steps."""

from collections import deque
from concurrent.futures import Future

from backends.base import Tokenizer


class TokenCounts:
    """Texts that wait to be counted. ask is for any thread, count for the engine's."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, Future[int]]] = deque()

    def ask(self, text: str) -> Future[int]:
        """The number of tokens of a text, later."""
        future: Future[int] = Future()
        self._waiting.append((text, future))
        return future

    def count(self, tokenizer: Tokenizer) -> None:
        """Count all that wait."""
        while self._waiting:
            text, future = self._waiting.popleft()
            future.set_result(len(tokenizer.encode(text, special=False)))
