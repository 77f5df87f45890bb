"""Whether drafted replies follow the target's own distribution, and how far they are from it."""

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
from decoding.sampler import Sampler
from decoding.sampling import SamplingSettings

LENGTH = 5
"""Tokens of a reply that are looked at; all but the first come out of drafting.

Rules that judge a draft as a whole differ from those that judge token after token from its second
token on.
"""

Outcome = tuple[int, ...]
Law = dict[Outcome, float]

_ROOM = 12
"""Tokens that a reply may go on for, so that drafts are no shorter than in a long one."""

_SIMULATIONS = 20_000
_LEAST_EXPECTED = 5.0


def exact_law(
    context: Context, prompt: Sequence[int], settings: SamplingSettings, length: int = LENGTH
) -> Law:
    """The probability of each reply of length tokens, by plain passes; few with a small top-k."""
    sampler = Sampler(settings)
    law: Law = {}

    def extend(rows: Logits, drawn: Outcome, probability: float) -> None:
        found = sampler.distribution(rows[-1], [*prompt, *drawn])
        for token, share in zip(found.ids.tolist(), found.probabilities.tolist(), strict=True):
            longer = (*drawn, token)
            if len(longer) == length:
                law[longer] = probability * share
            else:
                context.truncate(len(prompt) + len(drawn))
                extend(context.forward([token], 1), longer, probability * share)

    context.truncate(0)
    *_, (_, rows) = prefill(context, prompt)
    extend(rows, (), 1.0)
    return law


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


def p_value(law: Law, *samples: Counter[Outcome]) -> float:
    """How often a correct engine would do no better, by Pearson's chi-square test.

    samples: of replies, each compared with the law by itself, so that a fault in one of them is
    not thinned out by the others; their statistics are added. Which sample a reply is in must not
    depend on what was drawn for it. 0.0 for a reply that cannot be. The distribution of the
    statistic is simulated, so that it holds for small counts too.
    """
    if any(law.get(outcome, 0.0) == 0.0 for drawn in samples for outcome in drawn):
        return 0.0
    generator = np.random.default_rng(0)
    ours, simulated = 0.0, np.zeros(_SIMULATIONS)
    for drawn in samples:
        if drawn:
            probabilities, observed = _pooled(law, drawn)
            expected = probabilities * drawn.total()
            replies = generator.multinomial(drawn.total(), probabilities, size=_SIMULATIONS)
            simulated += ((replies - expected) ** 2 / expected).sum(axis=1)
            ours += float(((observed - expected) ** 2 / expected).sum())
    return float((1 + (simulated >= ours).sum()) / (1 + _SIMULATIONS))


def _pooled(law: Law, drawn: Counter[Outcome]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probabilities and counts, outcomes that are expected fewer than five times in one."""
    count = drawn.total()
    frequent = [outcome for outcome in law if law[outcome] * count >= _LEAST_EXPECTED]
    probabilities = np.array([law[outcome] for outcome in frequent])
    observed = np.array([float(drawn[outcome]) for outcome in frequent])
    rest = max(1.0 - probabilities.sum(), 0.0)
    if rest > 0.0:
        probabilities = np.append(probabilities, rest)
        observed = np.append(observed, count - observed.sum())
    return probabilities / probabilities.sum(), observed
