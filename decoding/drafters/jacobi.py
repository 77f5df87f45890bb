"""Jacobi decoding: the model's own words after a wrong guess are the next guess.

Santilli et al. 2023 (arXiv 2305.10427), algorithm 1: all guessed tokens are replaced at once by
what the model finds likeliest after those before them, until they stay. Here a guess is a draft.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from decoding.draft import NO_DRAFT, Draft, KeepOn
from decoding.drafters.no_backlog import NoBacklog
from decoding.sampler import Sampler

_CONFIDENCE = (0.02, 0.15, 0.4, 0.6)
"""How often a guess holds that stayed the same over so many passes, before this model is known."""


class Jacobi(NoBacklog):
    """Proposes what the model said at these places when it last passed over guesses there."""

    name = "jacobi"
    is_free = False

    def __init__(self, *, max_draft: int = 8) -> None:
        self._max_draft = max_draft
        self._forget()

    def _forget(self) -> None:
        self._start = 0
        """The place in the text of the first guess."""
        self._guesses: list[int] = []
        self._stayed: list[int] = []
        """Passes over which each guess has been the same; 0 of what the model never said."""

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        del history, sampler  # it guesses what is likeliest, whatever the settings
        self._forget()

    def commit(self, history: Sequence[int]) -> None: ...

    def _catch_up(self, history: Sequence[int]) -> None:
        """Guesses of what was said meanwhile are of no use any more."""
        said = len(history) - self._start
        del self._guesses[:said], self._stayed[:said]
        self._start = len(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self._catch_up(history)
        count = 0
        for place in range(min(limit, self._max_draft)):
            if place == len(self._guesses):  # any word will do to begin with
                self._guesses.append(history[-1 - place % len(history)])
                self._stayed.append(0)
            count += 1
            evidence = self._stayed[place]
            if keep_on is not None and not keep_on(_CONFIDENCE[evidence], evidence):
                break
        if count == 0:
            return NO_DRAFT
        tokens, evidence = tuple(self._guesses[:count]), tuple(self._stayed[:count])
        return Draft(
            tokens,
            self.name,
            tuple(_CONFIDENCE[stayed] for stayed in evidence),
            evidence=evidence,
            listener=partial(self._hear, tokens),
        )

    def _hear(self, drafted: Sequence[int], likeliest: NDArray[np.int64]) -> None:
        """What the model said at the same places, and at one more, are the next guesses."""
        said: list[int] = likeliest.tolist()
        longest = len(_CONFIDENCE) - 1
        self._stayed = [
            min(before + 1, longest) if token == guess else 1
            for token, guess, before in zip(said, drafted, self._stayed, strict=False)
        ] + [1]
        self._guesses = said
