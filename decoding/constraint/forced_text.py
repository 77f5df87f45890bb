"""The text that a grammar leaves no choice about, in tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from decoding.constraint.constraint import NOTHING_FORCED, Forced
from decoding.constraint.constraint_error import ConstraintError
from decoding.constraint.walker import Walker

Spell = Callable[[bytes], list[int]]
"""The tokens that a text is usually divided into."""


@dataclass(slots=True)
class ForcedText:
    """Follows the form of a grammar that tells what is certain; if that fails, nothing is any more.

    texts: of each token. spell: divides the end of a forced text, which the library leaves out as
    its last token may be longer. end: the token that usually ends a reply, None if there is none.
    """

    walker: Walker
    texts: Sequence[bytes]
    spell: Spell
    end: int | None
    _is_lost: bool = field(default=False, init=False)

    def after(self, drafted: Sequence[int], limit: int) -> Forced:
        """At most limit tokens after the accepted ones and drafted, which have not ended it."""
        if self._is_lost:
            return NOTHING_FORCED
        try:
            return self.walker.ask(lambda: self._after(drafted, limit))
        except ConstraintError:
            self._is_lost = True
            return NOTHING_FORCED

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens."""
        if self._is_lost:
            return
        try:
            self.walker.accept(tokens)
        except ConstraintError:
            self._is_lost = True

    def _after(self, drafted: Sequence[int], limit: int) -> Forced:
        walker = self.walker
        if walker.walk(drafted) < len(drafted):
            return NOTHING_FORCED
        tokens = walker.matcher.compute_ff_tokens()
        text = walker.matcher.compute_ff_bytes()
        certain = len(tokens)
        tokens += self._rest(text, tokens)
        if self.end is not None and len(tokens) < limit and self._is_complete([*drafted, *tokens]):
            tokens.append(self.end)
        return Forced(tuple(tokens[:limit]), min(certain, limit))

    def _rest(self, text: bytes, tokens: Sequence[int]) -> list[int]:
        """The end of a forced text after tokens."""
        head = b"".join(self.texts[token] for token in tokens)
        return self.spell(text[len(head) :]) if text.startswith(head) else []

    def _is_complete(self, tokens: Sequence[int]) -> bool:
        """Whether nothing may follow these tokens but the end of the reply."""
        return (
            self.walker.walk(tokens) == len(tokens)
            and self.walker.matcher.is_stopped()
            and self.walker.matcher.is_accepting()
        )
