"""What the tokens of one reply are limited to, and only after its reasoning where it reasons."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from decoding.constraint.grammar import NotAllowedError

Mask = NDArray[np.bool_]
"""Which tokens may follow, shape (n_vocab,)."""


class Evidence(IntEnum):
    """What speaks for a token at a place of a reply.

    Where only one text may follow: KNOWN, the model always divided such a text so. LIKELY, it did
    last time, or its tokenizer does, at no beginning of a word. GUESSED, its tokenizer does, or
    nothing is known. DIFFERENT, the model divided it otherwise.
    Elsewhere: FIRST and SECOND, tokens after such a text; FURTHER, those after them.
    """

    KNOWN = 0
    LIKELY = 1
    GUESSED = 2
    DIFFERENT = 3
    FIRST = 4
    SECOND = 5
    FURTHER = 6


class Forced(NamedTuple):
    """Tokens of the only text that may follow, in the division that the model may well make."""

    tokens: tuple[int, ...]
    evidence: tuple[Evidence, ...]


NOTHING_FORCED = Forced((), ())


class Constraint(Protocol):
    """Which tokens may follow in one reply; it advances with the tokens that are emitted only.

    Drafted tokens are given with each question and leave no trace, so that nothing has to be taken
    back when they are rejected.

    Raises:
        ConstraintError: as of each question; without what is drafted, another may be answered.
    """

    @property
    def length(self) -> int:
        """Number of tokens accepted so far."""
        ...

    def allowed(self, drafted: Sequence[int]) -> Mask | None:
        """The tokens that may follow the reply so far and drafted; read-only.

        None if all may, as after a token that ends the reply. After drafted tokens that may not
        follow, none is allowed.
        """
        ...

    def count_allowed(self, drafted: Sequence[int], tokens: Sequence[int]) -> int:
        """How many of the first of tokens may follow the reply so far and drafted."""
        ...

    def forced(self, drafted: Sequence[int], limit: int) -> Forced:
        """At most limit tokens of the only text that may follow the reply so far and drafted.

        They are a guess: the text is certain, but the model may divide it otherwise.
        """
        ...

    def evidence(self, drafted: Sequence[int], tokens: Sequence[int]) -> Sequence[Evidence]:
        """What speaks for each of tokens after the reply so far and drafted, all of them legal."""
        ...

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens, each of which was allowed."""
        ...


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How a model marks its reasoning.

    opening: what it begins with, where it is a token of its own. closing: what ends it, and the
    answer follows. is_open: whether the reply begins within it. before_closing: what the family
    writes before the closing text.
    """

    opening: bytes
    closing: bytes
    is_open: bool
    before_closing: bytes = b""


class _Phase(Enum):
    START = auto()
    REASONING = auto()
    ANSWER = auto()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a reply is. tail: end of the reasoning so far, which may begin the closing text.

    answer: tokens of the answer after the accepted ones. legal: number of tokens up to the first
    that must not follow in the reasoning.
    """

    phase: _Phase
    tail: bytes = b""
    answer: tuple[int, ...] = ()
    legal: int = 0


class AfterReasoning:
    """Leaves the reasoning free, and constrains what follows its end, wherever in a draft that is.

    Within the reasoning a reply cannot end, and nothing but white space may follow its closing text
    in the same token: the answer begins with the next one.

    answer: the constraint on the answer. texts: of each token, control tokens by their names; empty
    for padding.
    """

    def __init__(
        self,
        answer: Constraint,
        reasoning: Reasoning,
        texts: Sequence[bytes],
        end_tokens: frozenset[int],
    ) -> None:
        self._answer = answer
        self._closing = reasoning.closing
        self._texts = texts
        self._end_tokens = end_tokens
        self._openings = [
            token for token, text in enumerate(texts) if text and text == reasoning.opening
        ]
        self._place = _Place(_Phase.REASONING if reasoning.is_open else _Phase.START)
        self._free: dict[bytes, Mask] = {}
        """What may follow in the reasoning, by its tail."""
        self.length = 0

    def allowed(self, drafted: Sequence[int]) -> Mask | None:
        place = self._after(drafted)
        if place.legal < len(drafted):
            return np.zeros(len(self._texts), dtype=np.bool_)
        match place.phase:
            case _Phase.START:
                return self._at_start()
            case _Phase.REASONING:
                return self._in_reasoning(place.tail)
            case _Phase.ANSWER:
                return self._answer.allowed(place.answer)

    def count_allowed(self, drafted: Sequence[int], tokens: Sequence[int]) -> int:
        before, after = self._after(drafted), self._after([*drafted, *tokens])
        if before.legal < len(drafted):
            return 0
        free = len(tokens) - (len(after.answer) - len(before.answer))
        if after.legal < len(drafted) + free:
            return after.legal - len(drafted)
        return free + self._answer.count_allowed(before.answer, after.answer[len(before.answer) :])

    def forced(self, drafted: Sequence[int], limit: int) -> Forced:
        place = self._after(drafted)
        if place.legal < len(drafted) or place.phase is not _Phase.ANSWER:
            return NOTHING_FORCED
        return self._answer.forced(place.answer, limit)

    def evidence(self, drafted: Sequence[int], tokens: Sequence[int]) -> Sequence[Evidence]:
        before, after = self._after(drafted), self._after([*drafted, *tokens])
        answer = after.answer[len(before.answer) :]
        free = (Evidence.FURTHER,) * (len(tokens) - len(answer))
        return (*free, *self._answer.evidence(before.answer, answer))

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens.

        Raises:
            NotAllowedError: one was not allowed.
            ConstraintError: the grammar cannot be followed any further.
        """
        place = self._after(tokens)
        if place.legal < len(tokens):
            raise NotAllowedError
        self._answer.accept(place.answer)
        self._place = replace(place, answer=(), legal=0)
        self.length += len(tokens)

    def _after(self, tokens: Sequence[int]) -> _Place:
        place = self._place
        if place.phase is _Phase.ANSWER:
            return replace(place, answer=tuple(tokens), legal=len(tokens))
        for count, token in enumerate(tokens, start=1):
            if place.phase is _Phase.START and token in self._openings:
                place = _Place(_Phase.REASONING, legal=count)
            elif place.phase is not _Phase.REASONING:
                answer = (*place.answer, token)
                place = _Place(_Phase.ANSWER, answer=answer, legal=count)
            else:
                before, closing, rest = (place.tail + self._texts[token]).partition(self._closing)
                if token in self._end_tokens or rest.strip():
                    return replace(place, legal=count - 1)
                kept = before[-len(self._closing) + 1 :]
                place = _Place(_Phase.ANSWER if closing else _Phase.REASONING, kept, legal=count)
        return place

    def _at_start(self) -> Mask | None:
        allowed = self._answer.allowed(())
        if allowed is None or not self._openings:
            return allowed
        allowed = allowed.copy()
        allowed[self._openings] = True
        return allowed

    def _in_reasoning(self, tail: bytes) -> Mask:
        tail = next(
            (tail[at:] for at in range(len(tail)) if self._closing.startswith(tail[at:])), b""
        )
        if tail not in self._free:
            self._free[tail] = self._mask_where(
                lambda text: bool(text) and not (tail + text).partition(self._closing)[2].strip()
            )
        return self._free[tail]

    def _mask_where(self, may_follow: Callable[[bytes], bool]) -> NDArray[np.bool_]:
        mask = np.fromiter(map(may_follow, self._texts), np.bool_, len(self._texts))
        mask[list(self._end_tokens)] = False
        return mask


# A budget of reasoning: once it is spent, the family's own closing text comes next.
#
# It limits which tokens may follow, as a grammar does, so that drafted and plain decoding draw from
# the same distribution: the model's own up to the budget, its own again after the closing text.


@dataclass(frozen=True, slots=True)
class _Spent:
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
        self._place = _Spent()
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

    def _after(self, tokens: Sequence[int]) -> tuple[_Spent, int]:
        """The place after tokens, and how many of them are legal."""
        place = self._place
        for count, token in enumerate(tokens):
            if place.is_over:
                break
            if self._is_spent(place) and token != self._closing_token(place):
                return place, count
            place = self._next(place, token)
        return place, len(tokens)

    def _next(self, place: _Spent, token: int) -> _Spent:
        text = self._entry(token)
        if not (self._reasoning.is_open or place.spent):
            is_opening = text.strip() == self._reasoning.opening
            return _Spent(1) if is_opening else replace(place, is_over=bool(text.strip()))
        tail = place.tail + text
        if self._reasoning.closing in tail:
            return replace(place, is_over=True)
        return _Spent(place.spent + 1, tail[-len(self._end) :])

    def _is_spent(self, place: _Spent) -> bool:
        has_opened = self._reasoning.is_open or place.spent > 0
        # What opens the reasoning is none of it.
        spent = place.spent - (not self._reasoning.is_open)
        return not place.is_over and has_opened and spent >= self.budget

    def _closing_token(self, place: _Spent) -> int:
        begun = next(n for n in range(len(self._end), -1, -1) if place.tail.endswith(self._end[:n]))
        return self._encode(self._end[begun:])[0]
