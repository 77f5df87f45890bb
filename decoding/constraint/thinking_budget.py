"""A budget of reasoning: once it is spent, the family's own closing text comes next.

It limits which tokens may follow, as a grammar does, so that drafted and plain decoding draw from
the same distribution: the model's own up to the budget, its own again after the closing text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from decoding.constraint.constraint import (
    NOTHING_FORCED,
    Constraint,
    Evidence,
    Forced,
    Mask,
    Reasoning,
)
from decoding.constraint.grammar import NotAllowedError


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a reply is.

    spent: tokens of reasoning so far, with the opening one. tail: the end of the text, in which the
    closing text may have begun. is_over: whether it reasons no more.
    """

    spent: int = 0
    tail: bytes = b""
    is_over: bool = False


class ThinkingBudget:
    """Ends the reasoning of a reply after so many tokens of it; limits nothing else.

    has_ended_it: whether it has, by now. budget: in tokens.
    entry: the text of a token, control tokens by their names. encode: the tokens of a text with
    control tokens. inner: what limits the reply besides.
    """

    def __init__(
        self,
        budget: int,
        reasoning: Reasoning,
        n_vocab: int,
        entry: Callable[[int], bytes],
        encode: Callable[[bytes], Sequence[int]],
        inner: Constraint | None = None,
    ) -> None:
        self.budget, self._reasoning, self._n_vocab = budget, reasoning, n_vocab
        self._entry, self._encode, self._inner = entry, encode, inner
        self._end = reasoning.before_closing + reasoning.closing
        self._place = _Place()
        self.length = 0
        self.has_ended_it = False

    def allowed(self, drafted: Sequence[int]) -> Mask | None:
        place, legal = self._after(drafted)
        if legal == len(drafted) and not self._is_spent(place):
            return self._inner.allowed(drafted) if self._inner else None
        mask = np.zeros(self._n_vocab, dtype=np.bool_)
        if legal == len(drafted):
            mask[self._closing_token(place)] = True
        return mask

    def count_allowed(self, drafted: Sequence[int], tokens: Sequence[int]) -> int:
        _, legal = self._after([*drafted, *tokens])
        count = max(legal - len(drafted), 0)
        return count if self._inner is None else self._inner.count_allowed(drafted, tokens[:count])

    def forced(self, drafted: Sequence[int], limit: int) -> Forced:
        place, legal = self._after(drafted)
        if legal < len(drafted) or not self._is_spent(place):
            return self._inner.forced(drafted, limit) if self._inner else NOTHING_FORCED
        tokens: list[int] = []
        while len(tokens) < limit and self._is_spent(place):
            tokens.append(self._closing_token(place))
            place = self._next(place, tokens[-1])
        return Forced(tuple(tokens), (Evidence.KNOWN,) * len(tokens))

    def evidence(self, drafted: Sequence[int], tokens: Sequence[int]) -> Sequence[Evidence]:
        if self._inner is None:
            return (Evidence.FURTHER,) * len(tokens)
        return self._inner.evidence(drafted, tokens)

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens.

        Raises:
            NotAllowedError: one was not allowed.
            ConstraintError: as of what limits the reply besides.
        """
        place, legal = self._after(tokens)
        if legal < len(tokens):
            raise NotAllowedError
        before = (self._after(tokens[:count])[0] for count in range(len(tokens)))
        self.has_ended_it = self.has_ended_it or any(map(self._is_spent, before))
        if self._inner is not None:
            self._inner.accept(tokens)
        self._place = place
        self.length += len(tokens)

    def _after(self, tokens: Sequence[int]) -> tuple[_Place, int]:
        """The place after tokens, and how many of them are legal."""
        place = self._place
        for count, token in enumerate(tokens):
            if place.is_over:
                break
            if self._is_spent(place) and token != self._closing_token(place):
                return place, count
            place = self._next(place, token)
        return place, len(tokens)

    def _next(self, place: _Place, token: int) -> _Place:
        text = self._entry(token)
        if not (self._reasoning.is_open or place.spent):
            is_opening = text.strip() == self._reasoning.opening
            return _Place(1) if is_opening else replace(place, is_over=bool(text.strip()))
        tail = place.tail + text
        if self._reasoning.closing in tail:
            return replace(place, is_over=True)
        return _Place(place.spent + 1, tail[-len(self._end) :])

    def _is_spent(self, place: _Place) -> bool:
        has_opened = self._reasoning.is_open or place.spent > 0
        # What opens the reasoning is none of it.
        spent = place.spent - (not self._reasoning.is_open)
        return not place.is_over and has_opened and spent >= self.budget

    def _closing_token(self, place: _Place) -> int:
        begun = next(n for n in range(len(self._end), -1, -1) if place.tail.endswith(self._end[:n]))
        return self._encode(self._end[begun:])[0]
