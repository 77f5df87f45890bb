"""The distribution check at near-ties: of what rounding may decide nothing is held against it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from backends.base import Logits
from decoding.checks.distribution_check import (
    Outcome,
    ReplyDistribution,
    compared,
    distance,
    exact_distribution,
    p_value,
    plain_distances,
    reply,
)
from decoding.drafters.lookup import PromptLookup
from decoding.sampling.settings import SamplingSettings
from tests.decoding.conftest import FakeContext, random_table
from tests.fixtures.enumeration import N_VOCAB

SETTINGS = SamplingSettings(1.0, top_k=2, top_p=0.97, min_p=0.02)
FALSE_ALARM = 1e-4
PROMPT = [0, 1, 2, 0, 1, 2, 0, 1]
ROUNDING = 1e-3


class Rounds(FakeContext):
    """A model that moves logits in passes over several tokens, as other kernels round otherwise."""

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        rows = super().forward(tokens, n_logits)
        if len(tokens) > 1:
            rows += np.where(np.arange(rows.shape[-1]) % 2, ROUNDING, -ROUNDING)
        return rows


def tied(place: tuple[int, int]) -> np.ndarray:
    """A table whose tokens of rank 2 and 3 are nearly alike after two tokens."""
    table = random_table(3, N_VOCAB, 0.5)
    table[place] = (2.0, 1.0, 1.0 + ROUNDING / 2)
    return table


def drawn(context: FakeContext, exact: ReplyDistribution) -> Counter[Outcome]:
    drafter = PromptLookup(min_match=1)
    found = (
        reply(context, PROMPT, replace(SETTINGS, seed=seed), drafter)[0] for seed in range(150)
    )
    return Counter(compared(exact, outcome) for outcome in found)


@pytest.mark.parametrize(
    "place", [(1, 0), pytest.param((2, 1), marks=pytest.mark.slow)], ids=["later", "at first"]
)
def test_a_sound_engine_passes_wherever_a_tie_stands(place: tuple[int, int]) -> None:
    context = Rounds(tied(place))
    strict = exact_distribution(context, PROMPT, SETTINGS)
    assert p_value(strict, drawn(context, strict)) < FALSE_ALARM, "it says what plain passes do not"
    exact = exact_distribution(context, PROMPT, SETTINGS, rounding=ROUNDING)
    assert sum(exact.values()) == pytest.approx(1.0)
    assert 1 < len(exact) < len(strict)
    assert p_value(exact, drawn(context, exact)) > FALSE_ALARM


def test_a_fault_is_found_beside_a_tie() -> None:
    """A drafted token that is always accepted, and the model's own otherwise."""
    context = Rounds(tied((1, 0)))
    exact = exact_distribution(context, PROMPT, SETTINGS, rounding=ROUNDING)
    sound = drawn(context, exact)
    favoured = Counter({outcome: count for outcome, count in sound.items() if outcome[0] == 2})
    assert p_value(exact, sound + favoured) < FALSE_ALARM


def test_without_ties_nothing_is_left_out() -> None:
    context = FakeContext(random_table(3, N_VOCAB, 0.5))
    strict = exact_distribution(context, PROMPT, SETTINGS)
    assert exact_distribution(context, PROMPT, SETTINGS, rounding=1e-9) == strict


LAW: ReplyDistribution = {(0,): 0.5, (1,): 0.3, (2,): 0.2}


def test_from_none_to_all() -> None:
    assert distance(LAW, Counter({(0,): 5, (1,): 3, (2,): 2})) == pytest.approx(0.0)
    assert distance(LAW, Counter({(0,): 10})) == pytest.approx(0.5)
    assert distance(LAW, Counter({(7,): 10})) == pytest.approx(1.0)


def test_plain_replies_are_as_far_off_as_is_told() -> None:
    """One sample of a correct engine is beyond the last of these once in 20,000 times."""
    found = plain_distances(LAW, 1000)
    assert (np.diff(found) >= 0.0).all()
    # Each share is off by a normal law's mean absolute value: sqrt(2 p (1 - p) / (pi n)).
    shares = np.array(list(LAW.values()))
    expected = np.sqrt(2 * shares * (1 - shares) / (np.pi * 1000)).sum() / 2
    assert found.mean() == pytest.approx(expected, rel=0.02)
    drawn = np.random.default_rng(1).multinomial(1000, shares)
    counts = Counter({outcome: int(count) for outcome, count in zip(LAW, drawn, strict=True)})
    assert distance(LAW, counts) <= found[-1]
