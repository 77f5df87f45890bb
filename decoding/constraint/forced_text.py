"""The text that a grammar leaves no choice about, in tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from decoding.constraint.constraint import NOTHING_FORCED, Forced, Grounds
from decoding.constraint.constraint_error import ConstraintError
from decoding.constraint.divider import Divider
from decoding.constraint.walker import AnswerT, Walker

_FREE = (Grounds.FIRST, Grounds.SECOND, Grounds.FURTHER)
"""By the number of tokens since the last certain text."""

_LAST = len(_FREE) - 1


@dataclass(slots=True)
class ForcedText:
    """Follows the form of a grammar that tells what is certain; if that fails, nothing is any more.

    divider: divides what is certain; it learns how the model does, along tokens before which
    somebody asked. end: the token that usually ends a reply, None if there is none.
    """

    walker: Walker
    divider: Divider
    end: int | None
    _is_lost: bool = field(default=False, init=False)
    _is_followed: bool = field(default=False, init=False)
    """Whether anybody asked in this reply."""
    _free: int = field(default=0, init=False)
    """Accepted tokens since the last certain text."""

    def after(self, drafted: Sequence[int], limit: int) -> Forced:
        """At most limit tokens after the accepted ones and drafted, which have not ended it."""
        self._is_followed = True
        return self._unless_lost(lambda: self._after(drafted, limit)) or NOTHING_FORCED

    def grounds(self, drafted: Sequence[int], tokens: Sequence[int]) -> Sequence[Grounds]:
        """What speaks for each of tokens after the accepted ones and drafted, all of them legal."""
        self._is_followed = True
        try:
            return [] if self._is_lost else self._along([*drafted, *tokens])[len(drafted) :]
        except ConstraintError:  # of the grammar along this draft
            return []

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens."""
        if self._is_followed:
            self._unless_lost(lambda: self._learn(tokens))
        self._unless_lost(lambda: self.walker.accept(tokens))

    def _unless_lost(self, work: Callable[[], AnswerT]) -> AnswerT | None:
        """The result of work that follows the grammar, None where that fails for good."""
        if self._is_lost:
            return None
        try:
            return work()
        except ConstraintError:
            self._is_lost = True
            return None

    def _after(self, drafted: Sequence[int], limit: int) -> Forced:
        text = self._certain(drafted)
        divided = list(islice(self.divider.divided(text, self._settled), limit))
        tokens = [token for token, _ in divided]
        grounds = [one for _, one in divided]
        if self.end is not None and len(tokens) < limit and self._is_complete([*drafted, *tokens]):
            tokens.append(self.end)
            grounds.append(Grounds.LIKELY)
        return Forced(tuple(tokens), tuple(grounds))

    def _certain(self, tokens: Sequence[int]) -> bytes:
        """The certain text after the accepted tokens and these; the walker is there then."""

        def text() -> bytes:
            is_legal = self.walker.walk(tokens) == len(tokens)
            return self.walker.matcher.compute_ff_bytes() if is_legal else b""

        return self.walker.ask(text)

    def _settled(self) -> Sequence[int]:
        """The first tokens of the certain text where the walker is, whatever follows it."""
        return self.walker.matcher.compute_ff_tokens()

    def _along(self, line: Sequence[int]) -> list[Grounds]:
        """What speaks for each token of a line after the accepted ones."""
        found: list[Grounds] = []
        text, free = b"", self._free
        for count, token in enumerate(line):
            text = text or self._certain(line[:count])
            found.append(self.divider.grounds(text, token) if text else _FREE[min(free, _LAST)])
            free = 0 if text else free + 1
            text = self.divider.after(text, token)
        return found

    def _learn(self, tokens: Sequence[int]) -> None:
        """Learn how the model divided what was certain along emitted tokens."""
        text = b""
        for count, token in enumerate(tokens):
            text = text or self._certain(tokens[:count])
            self._free = 0 if text else self._free + 1
            self.divider.learn(text, token)
            text = self.divider.after(text, token)

    def _is_complete(self, tokens: Sequence[int]) -> bool:
        """Whether nothing may follow these tokens but the end of the reply."""
        return (
            self.walker.walk(tokens) == len(tokens)
            and self.walker.matcher.is_stopped()
            and self.walker.matcher.is_accepting()
        )
