"""Trial of a drafter model: its expected acceptance before it has ever drafted for this target."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from backends.base import Context, Logits
from decoding.estimation.acceptance import ANY_POSITION, Acceptance, temperature_bucket
from decoding.prefill import prefill, reuse
from decoding.sampling.distribution import Distribution, warp
from decoding.sampling.settings import SamplingSettings

MOST_SAID = 32
"""Most tokens that the target generates for a trial. A guess; not measured."""

_LEAST_SAID = 6
"""Least tokens that a slow target generates for a trial. A guess; not measured."""

_SECONDS = 0.8
"""Time after which the least tokens suffice: about that of measuring costs. Not measured."""

DraftDistribution = Callable[[SamplingSettings], Distribution]
"""q_draft of one token, by settings."""

Guess = Callable[[Sequence[int]], DraftDistribution | None]
"""q_draft of a drafter's first token after a history; None if it proposes nothing."""

_TEMPERATURES = (0.0, 0.4, 0.8, 1.0)
"""One temperature of each bucket."""


def trial(
    target: Context,
    guess: Guess,
    text: Sequence[int],
    n_vocab: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Acceptance:
    """Expected acceptance at each temperature on the target's own continuation of text, as counts.

    At a position it is the overlap of the two distributions, sum over x of min(p_target(x),
    q_draft(x)): Leviathan et al. 2023 (arXiv 2211.17192), corollary 3.6. As for an answer, a
    drafter is asked before the target passes the last token. The target's context is left empty; it
    must have room for the text and MOST_SAID tokens. n_vocab: entries past it are padding.

    Raises:
        ModelError: an engine failed.
    """
    started = clock()
    target.truncate(0)
    *_, (_, view) = prefill(target, text)
    history = [*text, int(view[0, :n_vocab].argmax())]
    p_rows: list[Logits] = []
    q_draft: list[DraftDistribution | None] = []
    while len(p_rows) < _LEAST_SAID or (
        len(history) < len(text) + MOST_SAID and clock() - started < _SECONDS
    ):
        q_draft.append(guess(history))
        view = target.forward(history[-1:], 1)
        p_rows.append(view[0, :n_vocab].copy())
        history.append(int(p_rows[-1].argmax()))
    target.truncate(0)
    return _expected(p_rows, q_draft)


def guess_of(drafter: Context, n_vocab: int) -> Guess:
    """What a drafter of the target's vocabulary guesses; its context is left with the text."""

    def guess(history: Sequence[int]) -> DraftDistribution:
        reuse(drafter, history)
        *_, (_, row) = prefill(drafter, history)
        return partial(warp, row[0, :n_vocab].copy())

    return guess


def _expected(p_rows: Sequence[Logits], q_draft: Sequence[DraftDistribution | None]) -> Acceptance:
    counts: dict[str, tuple[float, float]] = {}
    for temperature in _TEMPERATURES:
        settings = SamplingSettings(temperature=temperature)
        pairs = zip(p_rows, q_draft, strict=True)
        shares = [overlap(warp(p, settings), q(settings)) if q else 0.0 for p, q in pairs]
        counts[f"{temperature_bucket(temperature)}:{ANY_POSITION}"] = (
            float(np.sum(shares)),
            float(len(shares)),
        )
    return Acceptance(counts, is_trial=True)


def overlap(p_target: Distribution, q_draft: Distribution) -> float:
    """Probability that a token sampled from q_draft is accepted: sum of min(p, q)."""
    return float(np.minimum(q_draft.probabilities, p_target.at(q_draft.ids)).sum())
