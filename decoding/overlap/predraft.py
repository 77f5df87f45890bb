"""Drafts that were made ahead, by the text that they continue."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from decoding.drafters.model.growing_draft import GrowingDraft

Candidates = NDArray[np.int64]
"""The drafter's likeliest tokens at one position, likeliest first."""


@dataclass(slots=True)
class Predraft:
    """A draft made ahead, with the candidates at each of its positions."""

    draft: GrowingDraft = field(default_factory=GrowingDraft)
    candidates: list[Candidates] = field(default_factory=list[Candidates])


class Predrafts:
    """Drafts made ahead in one round, each for one text.

    Every one is sampled from the drafter's distribution after its text, by numbers that nothing
    else sees, and before it is known which text comes. It may be used after this text and no other,
    and once: then it is distributed as a draft made now.
    """

    def __init__(self, committed: int) -> None:
        """committed: length of the text that is final, and so the beginning of each."""
        self._committed = committed
        self._made: dict[tuple[int, ...], Predraft] = {}

    def __len__(self) -> int:
        return len(self._made)

    def add(self, text: Sequence[int]) -> Predraft:
        """Begin a draft to follow text."""
        predraft = self._made[self._key(text)] = Predraft()
        return predraft

    def has(self, text: Sequence[int]) -> bool:
        """Whether a token was drafted to follow exactly this text."""
        predraft = self._made.get(self._key(text))
        return predraft is not None and len(predraft.draft) > 0

    def take(self, text: Sequence[int]) -> Predraft | None:
        """The draft that was made to follow exactly this text, which is then gone."""
        return self._made.pop(self._key(text)) if self.has(text) else None

    def _key(self, text: Sequence[int]) -> tuple[int, ...]:
        return tuple(text[self._committed :])
