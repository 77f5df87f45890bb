"""Moves a matcher of a grammar along tokens, and back."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from backends.base import ModelError

if TYPE_CHECKING:
    from llguidance import LLMatcher


class Walker:
    """A matcher that is as far as the accepted tokens, or beyond them along a draft.

    make: makes another matcher, for one that failed, which it does for good.
    """

    def __init__(self, make: "Callable[[], LLMatcher]") -> None:
        self._make = make
        self._accepted: list[int] = []
        self._beyond: list[int] = []
        self.matcher = make()

    def walk(self, tokens: Sequence[int]) -> int:
        """Move to the end of tokens after the accepted ones; how many of them may follow.

        It then is after as many.
        """
        kept = 0
        for beyond, token in zip(self._beyond, tokens, strict=False):
            if beyond != token:
                break
            kept += 1
        if kept < len(self._beyond):
            self.matcher.rollback(len(self._beyond) - kept)
            del self._beyond[kept:]
        if kept < len(tokens):
            rest = list(tokens[kept:])
            self._beyond += rest[: self.matcher.try_consume_tokens(rest)]
        self.check()
        return len(self._beyond)

    def accept(self, tokens: Sequence[int]) -> None:
        """Count tokens that were walked along among the accepted ones."""
        assert self.walk(tokens) == len(tokens), "only what may follow is accepted"
        self._accepted += tokens
        self._beyond.clear()

    def check(self) -> None:
        """Start again at the accepted tokens after a failure.

        Raises:
            ModelError: it failed, as the grammar became too complex, or leaves nothing to follow.
        """
        if not self.matcher.is_error():
            return
        why = self.matcher.get_error().splitlines()[0]
        self.matcher = self._make()
        self.matcher.try_consume_tokens(self._accepted)
        self._beyond.clear()
        raise ModelError(
            "the answer was stopped",
            f"its grammar cannot be followed any further ({why})",
            "The answer so far is kept. Simplify the schema or the grammar.",
        )
