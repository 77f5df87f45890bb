"""A constraint by a grammar, followed by the matcher of llguidance."""

from collections.abc import Iterable, Sequence
from threading import Lock

import numpy as np

from decoding.constraint.constraint import NOTHING_FORCED, Forced, Grounds, Mask
from decoding.constraint.constraint_error import NotAllowedError
from decoding.constraint.forced_text import ForcedText
from decoding.constraint.walker import Walker


class MatcherConstraint:
    """Follows a grammar along drafted tokens, and takes them back for the next question.

    Each mask is computed once a step, whoever asks: a drafter, the target's row at the same place,
    or the draft of another drafter with the same beginning. Several threads may ask.

    matched: follows the grammar. forcing: follows the form of it that tells what text is certain.
    """

    def __init__(
        self, matched: Walker, forcing: ForcedText, n_vocab: int, end_tokens: Iterable[int]
    ) -> None:
        self._matched = matched
        self._forcing = forcing
        self._n_vocab = n_vocab
        self._end_tokens = frozenset(end_tokens)
        self._ends = np.array(sorted(self._end_tokens), dtype=np.int64)
        self._nothing = np.zeros(n_vocab, dtype=np.bool_)
        self._masks: dict[tuple[int, ...], Mask | None] = {}
        """By the tokens after the accepted ones."""
        self._is_over = False
        self._lock = Lock()
        self.length = 0

    def allowed(self, drafted: Sequence[int]) -> Mask | None:
        place = tuple(drafted)
        with self._lock:
            if place not in self._masks:
                self._masks[place] = self._matched.ask(lambda: self._mask(place))
            return self._masks[place]

    def count_allowed(self, drafted: Sequence[int], tokens: Sequence[int]) -> int:
        with self._lock:
            count = self._count([*drafted, *tokens])
        return max(count - len(drafted), 0)

    def forced(self, drafted: Sequence[int], limit: int) -> Forced:
        with self._lock:
            return NOTHING_FORCED if self._ended(drafted) else self._forcing.after(drafted, limit)

    def grounds(self, drafted: Sequence[int], tokens: Sequence[int]) -> Sequence[Grounds]:
        with self._lock:
            if self._ended(drafted):
                found: Sequence[Grounds] = ()
            else:
                end = next((at for at, one in enumerate(tokens) if one in self._end_tokens), None)
                found = self._forcing.grounds(drafted, tokens[:end])
        return (*found, *(Grounds.FURTHER,) * (len(tokens) - len(found)))

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens.

        Raises:
            NotAllowedError: one was not allowed, as the model gave no allowed token a score.
            ConstraintError: the grammar cannot be followed any further.
        """
        with self._lock:
            if self._count(tokens) < len(tokens):
                raise NotAllowedError
            self._masks.clear()
            self.length += len(tokens)
            self._is_over = self._ended(tokens)
            if not self._is_over:
                self._matched.accept(tokens)
                self._forcing.accept(tokens)

    def _ended(self, tokens: Sequence[int]) -> bool:
        """Whether the reply is over after these tokens."""
        return self._is_over or not self._end_tokens.isdisjoint(tokens)

    def _mask(self, place: tuple[int, ...]) -> Mask | None:
        if self._count(place) < len(place):
            return self._nothing
        if self._ended(place):
            return None
        matcher = self._matched.matcher
        bits = np.frombuffer(self._matched.bitmask(), dtype=np.uint8)
        mask = np.unpackbits(bits, count=self._n_vocab, bitorder="little").view(np.bool_)
        mask[self._ends] = matcher.is_accepting()
        mask.flags.writeable = False
        return mask

    def _count(self, tokens: Sequence[int]) -> int:
        """How many of tokens may follow the accepted ones; all may after one that ends it."""
        if self._is_over:
            return len(tokens)
        return self._matched.ask(lambda: self._counted(tokens))

    def _counted(self, tokens: Sequence[int]) -> int:
        end = next((at for at, token in enumerate(tokens) if token in self._end_tokens), None)
        count = self._matched.walk(tokens[:end])
        if end is None or count < end:
            return count
        return len(tokens) if self._matched.matcher.is_accepting() else count
