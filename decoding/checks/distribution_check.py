"""Checks that drafted replies are the target's own: of their distribution, and greedy."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.base import Context, Logits
from decoding.draft import Drafter
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.prefill import prefill
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings

LENGTH = 5
"""Tokens of a reply that are compared; all but the first come out of drafting.

Block rules differ from token-by-token rules from the second token of a draft on.
"""

Outcome = tuple[int, ...]
ReplyDistribution = dict[Outcome, float]
"""The probability of each reply; of its beginning, where rounding may decide what can follow."""

_ROOM = 12
"""Tokens that a reply may continue beyond those compared, so that drafts are as long as in a long
reply: the longest draft of the turns is 8."""

_BORDER = 3
"""Tokens beyond the possible ones that rounding may let in. A penalty may put others there, which
are then not tried."""

_SIMULATIONS = 20_000
"""Simulated samples behind a p-value: its resolution is 1 / 20,000."""

_LEAST_EXPECTED = 5.0
"""Least expected count of a bin of Pearson's test, the usual rule; rarer outcomes are pooled."""


def exact_distribution(
    context: Context,
    prompt: Sequence[int],
    settings: SamplingSettings,
    length: int = LENGTH,
    rounding: float = 0.0,
) -> ReplyDistribution:
    """Probability of each reply of length tokens, by plain passes; feasible for a small top-k.

    rounding: by how much passes over several tokens may move a logit. A reply is followed no
    further where that decides which tokens are possible: a sound engine may say others.
    """
    sampler = Sampler(settings)
    exact: ReplyDistribution = {}

    def extend(rows: Logits, drawn: Outcome, probability: float) -> None:
        text = [*prompt, *drawn]
        following = sampler.distribution(rows[-1], text)
        if rounding > 0.0 and _is_near_tie(rows[-1], sampler, text, rounding):
            exact[drawn] = probability
            return
        context.checkpoint()
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


def _is_near_tie(
    row: NDArray[np.float32], sampler: Sampler, text: Sequence[int], rounding: float
) -> bool:
    """Whether other tokens are possible if one of the likeliest moves against all others."""
    possible = sampler.distribution(row, text).ids
    tried = np.argsort(-row, kind="stable")[: len(possible) + _BORDER]
    for token in tried:
        for shift in (-2.0 * rounding, 2.0 * rounding):  # both logits may have moved
            moved = row.copy()
            moved[token] += shift
            if not np.array_equal(sampler.distribution(moved, text).ids, possible):
                return True
    return False


def compared(exact: ReplyDistribution, outcome: Outcome) -> Outcome:
    """The beginning of a reply that a distribution tells about; all of it if there is none."""
    starts = (outcome[:end] for end in range(len(outcome) + 1))
    return next((start for start in starts if start in exact), outcome)


def reply(
    context: Context,
    prompt: Sequence[int],
    settings: SamplingSettings,
    drafter: Drafter | None,
    length: int = LENGTH,
) -> tuple[Outcome, list[Step]]:
    """The first tokens of a reply, and the steps that emitted them."""
    limits = Limits(length + _ROOM, frozenset())
    tokens: list[int] = []
    steps: list[Step] = []
    for event in generate(context, prompt, settings, limits, drafters=always(drafter)):
        if isinstance(event, Step):
            tokens += event.tokens
            steps.append(event)
        if len(tokens) >= length:
            break
    return tuple(tokens[:length]), steps


def distance(exact: ReplyDistribution, drawn: Counter[Outcome]) -> float:
    """Total variation distance between a distribution and the shares of a sample, from 0 to 1.

    It is above 0 even for a finite sample of the distribution itself: see plain_distances.
    """
    count = drawn.total()
    outcomes = exact.keys() | drawn.keys()
    return sum(abs(exact.get(outcome, 0.0) - drawn[outcome] / count) for outcome in outcomes) / 2


def plain_distances(exact: ReplyDistribution, count: int) -> NDArray[np.float64]:
    """Distances of many samples of count plain replies, ascending, shape (_SIMULATIONS,)."""
    probabilities = np.array(list(exact.values()))
    probabilities /= probabilities.sum()
    simulated = np.random.default_rng(0).multinomial(count, probabilities, size=_SIMULATIONS)
    return np.sort(np.abs(simulated / count - probabilities).sum(axis=1) / 2)


def p_value(exact: ReplyDistribution, *samples: Counter[Outcome]) -> float:
    """The p-value of Pearson's chi-square test that samples follow a distribution.

    Samples are compared separately, so that one does not dilute a fault in another, and their
    statistics are added. The sample of a reply must not depend on its tokens. 0.0 for an
    impossible reply. The statistic's distribution is simulated, as counts may be small.
    """
    if any(exact.get(outcome, 0.0) == 0.0 for drawn in samples for outcome in drawn):
        return 0.0
    generator = np.random.default_rng(0)
    observed_statistic, simulated = 0.0, np.zeros(_SIMULATIONS)
    for drawn in samples:
        if drawn:
            probabilities, observed = _pooled(exact, drawn)
            expected = probabilities * drawn.total()
            replies = generator.multinomial(drawn.total(), probabilities, size=_SIMULATIONS)
            simulated += ((replies - expected) ** 2 / expected).sum(axis=1)
            observed_statistic += float(((observed - expected) ** 2 / expected).sum())
    return float((1 + (simulated >= observed_statistic).sum()) / (1 + _SIMULATIONS))


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


_GREEDY = SamplingSettings(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Divergence:
    """A token that differs from plain decoding's after the same text.

    margin: difference of the logits of both tokens in a plain pass.
    """

    position: int
    plain: int
    drafted: int
    margin: float


def greedy_reply(
    context: Context, prompt: Sequence[int], limits: Limits, drafter: Drafter | None
) -> Iterator[Step]:
    context.truncate(0)
    for event in generate(context, prompt, _GREEDY, limits, drafters=always(drafter)):
        if isinstance(event, Step):
            yield event


def divergences(
    context: Context, prompt: Sequence[int], reply: Sequence[int]
) -> Iterator[Divergence]:
    """Tokens of a greedy reply that differ from plain decoding's after the reply's own text.

    Each is compared with a pass over the single token before it, as in plain decoding, also after a
    divergence.
    """
    context.truncate(0)
    *_, (_, rows) = prefill(context, prompt)
    for position, token in enumerate(reply):
        row = rows[-1]
        likeliest = int(row.argmax())
        if likeliest != token:
            yield Divergence(position, likeliest, token, float(row[likeliest] - row[token]))
        if position + 1 < len(reply):
            rows = context.forward([token], 1)


def kernel_difference(context: Context, tokens: Sequence[int], most: int) -> float:
    """The largest change of a logit between passes over one token and over up to most tokens.

    0.0 means that a draft cannot change a rounding. tokens: a text longer than most, of which only
    the last most tokens are compared.
    """
    start = len(tokens) - most
    tested = tokens[start:]
    largest = 0.0
    context.truncate(0)
    for _ in prefill(context, tokens[:start]):
        pass
    context.checkpoint()
    alone = np.stack([context.forward([token], 1)[0].copy() for token in tested])
    for count in range(2, most + 1):
        context.truncate(start)
        batched = context.forward(tested[:count], count)
        largest = max(largest, float(np.abs(batched - alone[:count]).max()))
    return largest


def branch_difference(context: Context, tokens: Sequence[int]) -> float:
    """The largest change of a logit if the tokens before it were committed from branches.

    A cache may then hold them in another order, which changes sums. The second half of tokens is
    tested, in a context that can verify trees.
    """
    start = len(tokens) // 2
    tested = tokens[start:]
    context.truncate(0)
    for _ in prefill(context, tokens[:start]):
        pass
    expected = np.stack([context.forward([token], 1)[0].copy() for token in tested])
    context.truncate(start)
    largest = 0.0
    for index, token in enumerate(tested):
        if index % 4 == 0:  # commit the last of four branches; the next three fill the gap
            row = context.forward_tree([*tokens[:3], token], [-1] * 4)[3].copy()
            context.commit([3])
        else:
            row = context.forward([token], 1)[0]
        largest = max(largest, float(np.abs(row - expected[index]).max()))
    return largest
