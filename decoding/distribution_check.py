"""Whether drafted replies follow the target's own distribution, and how far they are from it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from backends.base import Context
from decoding.draft import Drafter
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.sampler import Sampler
from decoding.sampling import SamplingSettings

LENGTH = 3
"""Tokens of a reply that are looked at; the last two come out of drafting."""

Outcome = tuple[int, ...]
Law = dict[Outcome, float]

_ROOM = 3
"""Tokens that a reply may go on for, so that drafts are no shorter than in a long one."""

_SIMULATIONS = 20_000
_LEAST_EXPECTED = 5.0


def exact_law(
    context: Context, prompt: Sequence[int], settings: SamplingSettings, length: int = LENGTH
) -> Law:
    """The probability of each reply of length tokens, by plain passes; few with a small top-k."""
    sampler = Sampler(settings)
    law: Law = {}

    def extend(drawn: Outcome, probability: float) -> None:
        if len(drawn) == length:
            law[drawn] = probability
            return
        context.truncate(0)
        history = [*prompt, *drawn]
        found = sampler.distribution(context.forward(history, 1)[0], history)
        for token, share in zip(found.ids, found.probabilities, strict=True):
            extend((*drawn, int(token)), probability * float(share))

    extend((), 1.0)
    return law


def replies(
    context: Context,
    prompt: Sequence[int],
    settings: SamplingSettings,
    drafter: Drafter | None,
    count: int,
) -> Iterator[tuple[Outcome, int]]:
    """The first tokens of count replies, and how many were drafted, each with its own seed."""
    limits = Limits(LENGTH + _ROOM, frozenset())
    for seed in range(count):
        said: list[int] = []
        drafted = 0
        for event in generate(
            context, prompt, replace(settings, seed=seed), limits, drafter=drafter
        ):
            if isinstance(event, Step):
                said += event.tokens
                drafted += event.drafted
            if len(said) >= LENGTH:
                break
        yield tuple(said[:LENGTH]), drafted


def distance(law: Law, drawn: Counter[Outcome]) -> float:
    """Total variation between the law and the shares of what was drawn, from 0 to 1.

    It is not 0 for a finite number of replies that follow the law: plain_distances tells how far.
    """
    count = drawn.total()
    outcomes = law.keys() | drawn.keys()
    return sum(abs(law.get(one, 0.0) - drawn[one] / count) for one in outcomes) / 2


def plain_distances(law: Law, count: int) -> NDArray[np.float64]:
    """The same for many samples of count plain replies, ascending, shape (_SIMULATIONS,)."""
    probabilities = np.array(list(law.values()))
    probabilities /= probabilities.sum()
    simulated = np.random.default_rng(0).multinomial(count, probabilities, size=_SIMULATIONS)
    return np.sort(np.abs(simulated / count - probabilities).sum(axis=1) / 2)


def p_value(law: Law, drawn: Counter[Outcome]) -> float:
    """How often a correct engine would do no better, by Pearson's chi-square test.

    0.0 for a reply that cannot be. Outcomes expected fewer than five times are pooled. The
    distribution of the statistic is simulated, so that it holds for small counts too.
    """
    if any(law.get(outcome, 0.0) == 0.0 for outcome in drawn):
        return 0.0
    count = drawn.total()
    frequent = [outcome for outcome in law if law[outcome] * count >= _LEAST_EXPECTED]
    probabilities = np.array([law[outcome] for outcome in frequent])
    observed = np.array([drawn[outcome] for outcome in frequent])
    rest = max(1.0 - probabilities.sum(), 0.0)
    if rest > 0.0:
        probabilities = np.append(probabilities, rest)
        observed = np.append(observed, count - observed.sum())
    probabilities /= probabilities.sum()
    expected = probabilities * count
    simulated = np.random.default_rng(0).multinomial(count, probabilities, size=_SIMULATIONS)
    statistics = ((simulated - expected) ** 2 / expected).sum(axis=1)
    ours = ((observed - expected) ** 2 / expected).sum()
    return float((1 + (statistics >= ours).sum()) / (1 + _SIMULATIONS))
