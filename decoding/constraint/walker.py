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
        self._masked = 0
        """Tokens up to the place of the mask that the matcher keeps."""
        self._parted: int | None = None
        """Tokens up to where that place parts from this one; None if it does not."""
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

    def bitmask(self) -> bytes:
        """Which tokens may follow where it is, a bit for each.

        The matcher gives the mask that it keeps for every place with as many lexemes before it and
        the same that may follow, though it be along another draft. The mask of where the two parted
        holds for both.
        """
        length = len(self._accepted) + len(self._beyond)
        if self._parted is not None and self._parted < length:
            back = [*self._accepted, *self._beyond][self._parted :]
            self.matcher.rollback(len(back))
            self.matcher.compute_bitmask()
            self.matcher.try_consume_tokens(back)
        self._masked, self._parted = length, None
        return self.matcher.compute_bitmask()

    def _walked(self, tokens: Sequence[int]) -> int:
        kept = 0
        for beyond, token in zip(self._beyond, tokens, strict=False):
            if beyond != token:
                break
            kept += 1
        if kept < len(self._beyond):
            self.matcher.rollback(len(self._beyond) - kept)
            del self._beyond[kept:]
            place = len(self._accepted) + kept
            if place < self._masked:
                self._masked = self._parted = place
        if kept < len(tokens):
            rest = list(tokens[kept:])
            self._beyond += rest[: self.matcher.try_consume_tokens(rest)]
        return len(self._beyond)

    def accept(self, tokens: Sequence[int]) -> None:
        """Count tokens that were walked along among the accepted ones.

        Raises:
            ConstraintError: as of ask.
        """
        walked = self.walk(tokens)
        assert walked == len(tokens), "only what may follow is accepted"
        self._accepted += tokens
        self._beyond.clear()

    def _start_again(self) -> None:
        """Take a new matcher, at the accepted tokens."""
        self.matcher = self._make()
        self.matcher.try_consume_tokens(self._accepted)
        self._beyond.clear()
        self._masked, self._parted = 0, None
