"""Jacobi decoding: the model's own tokens after a rejected guess are the next guess.

Santilli et al. 2023 (arXiv 2305.10427), algorithm 1: all guessed tokens are replaced at once by
the model's likeliest tokens, until they no longer change. Here a guess is a draft.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, PointMassLine
from decoding.sampling.sampler import Sampler

_CONFIDENCE = (0.02, 0.15, 0.4, 0.6)
"""Prior acceptance of a guess by the number of passes over which it has not changed."""


class Jacobi(Drafter):
    """Proposes the model's likeliest tokens at these positions in its last pass over guesses."""

    name = "jacobi"
    is_free = False

    def __init__(self, *, max_draft: int = 8) -> None:
        self._max_draft = max_draft
        self._forget()

    def _forget(self) -> None:
        self._start = 0
        """Position in the text of the first guess."""
        self._guesses: list[int] = []
        self._stayed: list[int] = []
        """Passes over which each guess has not changed; 0 for one that is not the model's."""

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._forget()

    def _catch_up(self, history: Sequence[int]) -> None:
        """Drop the guesses at positions that have been decided."""
        decided = len(history) - self._start
        del self._guesses[:decided], self._stayed[:decided]
        self._start = len(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self._catch_up(history)
        count = 0
        for position in range(min(limit, self._max_draft)):
            if position == len(self._guesses):  # any token will do to begin with
                self._guesses.append(history[-1 - position % len(history)])
                self._stayed.append(0)
            count += 1
            evidence = self._stayed[position]
            if keep_on is not None and not keep_on(_CONFIDENCE[evidence], evidence):
                break
        if count == 0:
            return NO_DRAFT
        tokens, evidence = tuple(self._guesses[:count]), tuple(self._stayed[:count])
        return Draft(
            PointMassLine(tokens),
            self.name,
            tuple(_CONFIDENCE[stayed] for stayed in evidence),
            evidence,
            listener=partial(self._on_verified, tokens),
        )

    def _on_verified(self, drafted: Sequence[int], likeliest: NDArray[np.int64]) -> None:
        """Take the model's tokens at the same positions, and at one more, as the next guesses."""
        tokens: list[int] = likeliest.tolist()
        longest = len(_CONFIDENCE) - 1
        self._stayed = [
            min(before + 1, longest) if token == guess else 1
            for token, guess, before in zip(tokens, drafted, self._stayed, strict=False)
        ] + [1]
        self._guesses = tokens
