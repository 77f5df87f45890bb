"""Statistical checks that drafted replies follow the target's own distribution."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from backends.base import Context, Logits
from decoding.current_drafter import always
from decoding.draft import Drafter
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.prefill import prefill
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler

LENGTH = 5
"""Tokens of a reply that are compared; all but the first come out of drafting.

Block rules differ from token-by-token rules from the second token of a draft on.
"""

Outcome = tuple[int, ...]
ReplyDistribution = dict[Outcome, float]
"""The probability of each reply."""

_ROOM = 12
"""Tokens that a reply may continue beyond those, so that drafts are as long as in a long reply."""

_SIMULATIONS = 20_000
_LEAST_EXPECTED = 5.0


def exact_distribution(
    context: Context, prompt: Sequence[int], settings: SamplingSettings, length: int = LENGTH
) -> ReplyDistribution:
    """The probability of each reply of length tokens, by plain passes; few with a small top-k."""
    sampler = Sampler(settings)
    exact: ReplyDistribution = {}

    def extend(rows: Logits, drawn: Outcome, probability: float) -> None:
        following = sampler.distribution(rows[-1], [*prompt, *drawn])
        pairs = zip(following.ids.tolist(), following.probabilities.tolist(), strict=True)
        for token, share in pairs:
            longer = (*drawn, token)
            if len(longer) == length:
                exact[longer] = probability * share
            else:
                context.truncate(len(prompt) + len(drawn))
                extend(context.forward([token], 1), longer, probability * share)

    context.truncate(0)
    *_, (_, rows) = prefill(context, prompt)
    extend(rows, (), 1.0)
    return exact


def reply(
    context: Context,
    prompt: Sequence[int],
    settings: SamplingSettings,
    drafter: Drafter | None,
    length: int = LENGTH,
) -> tuple[Outcome, list[Step]]:
    """The first tokens of a reply, and the steps they came in."""
    limits = Limits(length + _ROOM, frozenset())
    said: list[int] = []
    steps: list[Step] = []
    for event in generate(context, prompt, settings, limits, drafters=always(drafter)):
        if isinstance(event, Step):
            said += event.tokens
            steps.append(event)
        if len(said) >= length:
            break
    return tuple(said[:length]), steps


def distance(exact: ReplyDistribution, drawn: Counter[Outcome]) -> float:
    """Total variation between a distribution and the shares of what was drawn, from 0 to 1.

    It is not 0 for a finite sample of the distribution itself: see plain_distances.
    """
    count = drawn.total()
    outcomes = exact.keys() | drawn.keys()
    return sum(abs(exact.get(one, 0.0) - drawn[one] / count) for one in outcomes) / 2


def plain_distances(exact: ReplyDistribution, count: int) -> NDArray[np.float64]:
    """Distances of many samples of count plain replies, ascending, shape (_SIMULATIONS,)."""
    probabilities = np.array(list(exact.values()))
    probabilities /= probabilities.sum()
    simulated = np.random.default_rng(0).multinomial(count, probabilities, size=_SIMULATIONS)
    return np.sort(np.abs(simulated / count - probabilities).sum(axis=1) / 2)


def p_value(exact: ReplyDistribution, *samples: Counter[Outcome]) -> float:
    """The p-value of Pearson's chi-square test that samples follow a distribution.

    Each sample is compared by itself, so that the others do not dilute a fault in it, and their
    statistics are added. Which sample a reply is in must not depend on what was drawn for it. 0.0
    for an impossible reply. The statistic's distribution is simulated, as counts may be small.
    """
    if any(exact.get(outcome, 0.0) == 0.0 for drawn in samples for outcome in drawn):
        return 0.0
    generator = np.random.default_rng(0)
    ours, simulated = 0.0, np.zeros(_SIMULATIONS)
    for drawn in samples:
        if drawn:
            probabilities, observed = _pooled(exact, drawn)
            expected = probabilities * drawn.total()
            replies = generator.multinomial(drawn.total(), probabilities, size=_SIMULATIONS)
            simulated += ((replies - expected) ** 2 / expected).sum(axis=1)
            ours += float(((observed - expected) ** 2 / expected).sum())
    return float((1 + (simulated >= ours).sum()) / (1 + _SIMULATIONS))


def _pooled(
    exact: ReplyDistribution, drawn: Counter[Outcome]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probabilities and counts, with all outcomes expected fewer than five times in one bin."""
    count = drawn.total()
    frequent = [outcome for outcome in exact if exact[outcome] * count >= _LEAST_EXPECTED]
    probabilities = np.array([exact[outcome] for outcome in frequent])
    observed = np.array([float(drawn[outcome]) for outcome in frequent])
    rest = max(1.0 - probabilities.sum(), 0.0)
    if rest > 0.0:
        probabilities = np.append(probabilities, rest)
        observed = np.append(observed, count - observed.sum())
    return probabilities / probabilities.sum(), observed
