"""Drafts the next round, one outcome of the verification after another, in a pass at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decoding.drafters.model.draft_model import DraftModel
from decoding.overlap.outcomes import MOST_CANDIDATES, likeliest_outcomes
from decoding.overlap.predraft import Candidates, Predrafts
from decoding.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Unranked:
    """Logits at a position of a draft; candidates are taken from them while the target runs."""

    logits: NDArray[np.float32]


Position = Candidates | Unranked
"""The candidates at a position of a draft, or what they are to be taken from."""


@dataclass(frozen=True, slots=True)
class Round:
    """A draft that is being verified, and what to draft ahead for.

    history: before the draft. positions: one for each drafted token. acceptance: of each drafted
    token, given that all before it are accepted. longest: most tokens drafted for an outcome.
    """

    history: Sequence[int]
    drafted: Sequence[int]
    positions: Sequence[Position]
    acceptance: Sequence[float]
    longest: int


def predrafting(
    drafter: DraftModel, sampler: Sampler, current: Round, predrafts: Predrafts
) -> Iterator[None]:
    """Draft ahead for one outcome after another; yields after each pass of the drafter.

    Nothing in here knows of the verification: the outcomes follow from the draft alone, and each is
    drafted for by the drafter's own distribution. Between two passes the round may end, as whether
    it does depends on no token still to be drafted.
    """
    drafted, positions = tuple(current.drafted), list(current.positions)
    for outcome in likeliest_outcomes(current.acceptance):
        text = [*current.history, *drafted[: outcome.kept]]
        if outcome.kept == len(positions):  # the token after all, from one pass more
            if drafter.room(text, 1) < 1:
                continue
            positions.append(ranked(drafter.logits(text)))
            yield
        candidates = positions[outcome.kept]
        if isinstance(candidates, Unranked):
            candidates = _other_than(drafted[outcome.kept], ranked(candidates.logits))
            positions[outcome.kept] = candidates
        if outcome.rank >= len(candidates):
            continue
        text.append(int(candidates[outcome.rank]))
        count = drafter.room(text, current.longest)
        if text[-1] in drafter.end_tokens or count < 1:
            continue
        predraft = predrafts.add(text)
        for row in drafter.drawing(text, count, predraft.draft, sampler):
            token = predraft.draft.tokens[-1]
            predraft.candidates.append(_other_than(token, ranked(row)))
            yield


def ranked(logits: NDArray[np.float32]) -> Candidates:
    """The likeliest tokens of a row of logits, one more than are ever asked for."""
    count = min(MOST_CANDIDATES + 1, len(logits))
    best = np.argpartition(logits, len(logits) - count)[-count:]
    return best[np.argsort(-logits[best], kind="stable")]


def _other_than(token: int, candidates: Candidates) -> Candidates:
    """Candidates without the drafted token, which was rejected if another one follows."""
    return candidates[candidates != token]
