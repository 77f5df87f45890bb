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
