"""How often a drafter model will be right, guessed before it ever drafted for this target."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from backends.base import Context, Logits
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.acceptance_keys import DRAWN, temperature_bucket
from decoding.prefill import prefill, reuse
from decoding.sampling.distribution import Distribution, SamplingSettings, warp

MOST_SAID = 32
"""Tokens the target says for it, where it is fast."""

_LEAST_SAID = 6

_SECONDS = 0.8
"""After which the least must do: a slow model has other things to be measured."""

_WEIGHT = 15.0
"""Observations that the guess counts for: a reply may be of another kind."""

Law = Callable[[SamplingSettings], Distribution]
"""q_draft of one token, by settings."""

Guess = Callable[[Sequence[int]], Law | None]
"""What a drafter would say after a history; None for nothing."""

_TEMPERATURES = (0.0, 0.4, 0.8, 1.0)


def trial(
    target: Context,
    drafter: Context,
    text: Sequence[int],
    n_vocab: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Acceptance:
    """Expected acceptance at each temperature on the target's own words after text, as counts.

    At a position it is the overlap of the two distributions, sum over x of min(p_target(x),
    q_draft(x)): Leviathan et al. 2023 (arXiv 2211.17192), corollary 3.6. Both contexts are left
    empty; they must hold the text and MOST_SAID tokens. n_vocab: entries past it are padding.

    Raises:
        ModelError: an engine failed.
    """
    said, p_rows = _spoken(target, text, n_vocab, clock)
    laws = [partial(warp, row) for row in read(drafter, text, said, n_vocab)]
    drafter.truncate(0)
    return _expected(p_rows, laws)


def trial_across(
    target: Context,
    guess: Guess,
    text: Sequence[int],
    n_vocab: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Acceptance:
    """The same for a drafter of another vocabulary, which is asked for its first token.

    Only the target's context is left empty.

    Raises:
        ModelError: an engine failed.
    """
    said, p_rows = _spoken(target, text, n_vocab, clock)
    return _expected(p_rows, [guess([*text, *said[:place]]) for place in range(len(said))])


def _expected(p_rows: Sequence[Logits], laws: Sequence[Law | None]) -> Acceptance:
    counts: dict[str, tuple[float, float]] = {}
    for temperature in _TEMPERATURES:
        settings = SamplingSettings(temperature=temperature)
        pairs = zip(p_rows, laws, strict=True)
        shares = [overlap(warp(p, settings), law(settings)) if law else 0.0 for p, law in pairs]
        counts[f"{temperature_bucket(temperature)}:{DRAWN}"] = (
            float(np.mean(shares)) * _WEIGHT,
            _WEIGHT,
        )
    return Acceptance(counts, is_trial=True)


def _spoken(
    context: Context, text: Sequence[int], n_vocab: int, clock: Callable[[], float]
) -> tuple[list[int], list[Logits]]:
    """The likeliest tokens after text, and the row of logits that each was taken from."""
    started = clock()
    context.truncate(0)
    *_, (_, view) = prefill(context, text)
    said: list[int] = []
    rows: list[Logits] = []
    while len(said) < _LEAST_SAID or (len(said) < MOST_SAID and clock() - started < _SECONDS):
        rows.append(view[0, :n_vocab].copy())
        said.append(int(rows[-1].argmax()))
        view = context.forward(said[-1:], 1)
    context.truncate(0)
    return said, rows


def read(context: Context, text: Sequence[int], said: Sequence[int], n_vocab: int) -> list[Logits]:
    """Logits at each place of what was said after text, shape (n_vocab,); those before are given.

    What the context holds of the text already is not read again.

    Raises:
        ModelError: the engine failed.
    """
    reuse(context, text)
    *_, (_, view) = prefill(context, text)
    rows = [view[0, :n_vocab].copy()]
    most = min(context.n_chunk, context.max_logits)
    for start in range(0, len(said) - 1, most):
        chunk = said[start : min(start + most, len(said) - 1)]
        rows += [row.copy() for row in context.forward(chunk, len(chunk))[:, :n_vocab]]
    return rows


def overlap(p_target: Distribution, q_draft: Distribution) -> float:
    """The probability that a token drawn from q_draft is accepted: sum of min(p, q)."""
    return float(np.minimum(q_draft.probabilities, p_target.at(q_draft.ids)).sum())
