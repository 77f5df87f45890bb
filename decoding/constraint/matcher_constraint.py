"""A constraint by a grammar, followed by the matcher of llguidance."""

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from backends.base import ModelError
from decoding.constraint.constraint import Mask

if TYPE_CHECKING:
    from llguidance import LLMatcher


class MatcherConstraint:
    """Follows a grammar along drafted tokens, and takes them back for the next question.

    Each mask is computed once a step, whoever asks: a drafter, the target's row at the same place,
    or the draft of another drafter with the same beginning. Several threads may ask.
    """

    def __init__(self, matcher: "LLMatcher", n_vocab: int, end_tokens: Iterable[int]) -> None:
        self._matcher = matcher
        self._n_vocab = n_vocab
        self._end_tokens = frozenset(end_tokens)
        self._ends = np.array(sorted(self._end_tokens), dtype=np.int64)
        self._nothing = np.zeros(n_vocab, dtype=np.bool_)
        self._walked: list[int] = []
        """Tokens that the matcher has consumed beyond the accepted ones."""
        self._masks: dict[tuple[int, ...], Mask | None] = {}
        """By the tokens after the accepted ones."""
        self._is_over = False
        self._lock = Lock()
        self.length = 0

    def allowed(self, drafted: Sequence[int]) -> Mask | None:
        place = tuple(drafted)
        with self._lock:
            if place not in self._masks:
                self._masks[place] = self._mask(place)
            return self._masks[place]

    def count_allowed(self, drafted: Sequence[int], tokens: Sequence[int]) -> int:
        with self._lock:
            count = self._count([*drafted, *tokens])
        return max(count - len(drafted), 0)

    def forced(self, drafted: Sequence[int], limit: int) -> tuple[int, ...]:
        with self._lock:
            if self._ended(drafted) or self._walk(drafted) < len(drafted):
                return ()
            return tuple(self._matcher.compute_ff_tokens()[:limit])

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens.

        Raises:
            ModelError: one was not allowed, as the model gave no allowed token a score.
        """
        with self._lock:
            if self._count(tokens) < len(tokens):
                raise ModelError(
                    "the answer was stopped",
                    "the model gives no score to any token that its grammar allows",
                    "The answer so far is kept.",
                )
            self._masks.clear()
            self._walked.clear()
            self._is_over = self._is_over or self._ended(tokens)
            self.length += len(tokens)

    def _ended(self, tokens: Sequence[int]) -> bool:
        """Whether the reply is over after these tokens."""
        return self._is_over or not self._end_tokens.isdisjoint(tokens)

    def _mask(self, place: tuple[int, ...]) -> Mask | None:
        if self._count(place) < len(place):
            return self._nothing
        if self._ended(place):
            return None
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        mask = np.unpackbits(bits, count=self._n_vocab, bitorder="little").view(np.bool_)
        mask[self._ends] = self._matcher.is_accepting()
        self._check()
        mask.flags.writeable = False
        return mask

    def _count(self, tokens: Sequence[int]) -> int:
        """How many of tokens may follow the accepted ones; all may after one that ends it."""
        if self._is_over:
            return len(tokens)
        end = next((at for at, token in enumerate(tokens) if token in self._end_tokens), None)
        count = self._walk(tokens[:end])
        if end is None or count < end:
            return count
        return len(tokens) if self._matcher.is_accepting() else count

    def _walk(self, tokens: Sequence[int]) -> int:
        """Have the matcher consume tokens after the accepted ones; how many of them it takes."""
        kept = 0
        for walked, token in zip(self._walked, tokens, strict=False):
            if walked != token:
                break
            kept += 1
        if kept < len(self._walked):
            self._matcher.rollback(len(self._walked) - kept)
            del self._walked[kept:]
        if kept < len(tokens):
            rest = list(tokens[kept:])
            self._walked += rest[: self._matcher.try_consume_tokens(rest)]
        self._check()
        return len(self._walked)

    def _check(self) -> None:
        if self._matcher.is_error():
            why = self._matcher.get_error().splitlines()[0]
            raise ModelError(
                "the answer was stopped",
                f"its grammar is too complex to follow: {why}",
                "The answer so far is kept. Simplify the schema or the grammar.",
            )
