"""Moves a matcher of a grammar along tokens, and back."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from decoding.constraint.constraint_error import ConstraintError

if TYPE_CHECKING:
    from llguidance import LLMatcher

AnswerT = TypeVar("AnswerT")


class Walker:
    """A matcher that is as far as the accepted tokens, or beyond them along a draft.

    make: makes another matcher, for one that failed, which it does for good.
    """

    def __init__(self, make: "Callable[[], LLMatcher]") -> None:
        self._make = make
        self._accepted: list[int] = []
        self._beyond: list[int] = []
        self.matcher = make()

    def ask(self, question: Callable[[], AnswerT]) -> AnswerT:
        """The answer to a question to the matcher; if it fails, that of a new one.

        A matcher counts the states of all that it ever looked at, rejected drafts included; a new
        one has only those of the accepted text. What was drafted so does not end a reply.

        Raises:
            ConstraintError: the new one fails too.
        """
        answer = question()
        if self.matcher.is_error():
            self._start_again()
            answer = question()
        if self.matcher.is_error():
            why = self.matcher.get_error().splitlines()[0]
            self._start_again()
            raise ConstraintError(why)
        return answer

    def walk(self, tokens: Sequence[int]) -> int:
        """Move to the end of tokens after the accepted ones; how many of them may follow.

        It then is after as many.

        Raises:
            ConstraintError: as of ask.
        """
        return self.ask(lambda: self._walked(tokens))

    def _walked(self, tokens: Sequence[int]) -> int:
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
        return len(self._beyond)

    def accept(self, tokens: Sequence[int]) -> None:
        """Count tokens that were walked along among the accepted ones.

        Raises:
            ConstraintError: as of ask.
        """
        assert self.walk(tokens) == len(tokens), "only what may follow is accepted"
        self._accepted += tokens
        self._beyond.clear()

    def _start_again(self) -> None:
        """Take a new matcher, at the accepted tokens."""
        self.matcher = self._make()
        self.matcher.try_consume_tokens(self._accepted)
        self._beyond.clear()
