"""Warping of logits against a slow reference, drawing, settings, and the streams of a reply."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from backends.base import ModelError, UsageError
from decoding.sampling import distribution as truncation
from decoding.sampling.distribution import (
    PENALTY_WINDOW,
    Distribution,
    SamplingSettings,
    point_mass,
    warp,
)
from decoding.sampling.sampler import Sampler

common = hypothesis_settings(max_examples=100)
PLAIN = SamplingSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


@dataclass(frozen=True)
class Reference:
    """What settings leave of a row, by the definitions one after another."""

    probabilities: dict[int, float]
    scores: list[float]
    margin: float
    """How near a top-p or min-p border passed to a token; too near, rounding decides."""


def reference(
    logits: NDArray[np.float32], settings: SamplingSettings, recent: Sequence[int]
) -> Reference:
    scores = [float(value) for value in logits]
    penalty = np.float32(settings.repeat_penalty)
    for token in set(recent[-PENALTY_WINDOW:]):
        if token < len(scores):
            value = np.float32(scores[token])
            scores[token] = float(value / penalty if value > 0 else value * penalty)
    ranked = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    if settings.temperature == 0.0:
        return Reference({ranked[0]: 1.0}, scores, 1.0)
    if settings.top_k:
        ranked = ranked[: settings.top_k]
    best = scores[ranked[0]]
    weights = [math.exp(scores[token] - best) for token in ranked]
    margin = 1.0
    if settings.top_p < 1.0:
        wanted = settings.top_p * math.fsum(weights)
        cumulative, count = 0.0, 0
        while cumulative < wanted and count < len(ranked):
            margin = min(margin, abs(wanted - cumulative) / wanted)
            cumulative += weights[count]
            count += 1
        margin = min(margin, abs(cumulative - wanted) / wanted)
        ranked, weights = ranked[:count], weights[:count]
    if settings.min_p > 0.0:
        margin = min(margin, *(abs(weight - settings.min_p) for weight in weights), 1.0)
        ranked = [t for t, weight in zip(ranked, weights, strict=True) if weight >= settings.min_p]
    heated = [math.exp((scores[token] - best) / settings.temperature) for token in ranked]
    total = math.fsum(heated)
    probabilities = {t: h / total for t, h in zip(ranked, heated, strict=True)}
    return Reference(probabilities, scores, margin)


@st.composite
def rows(draw: st.DrawFn) -> NDArray[np.float32]:
    """Logits of small and large vocabularies, some with ties, some with impossible tokens."""
    n_vocab = draw(st.one_of(st.integers(2, 400), st.sampled_from([5000, 5119, 8192])))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    row = generator.normal(scale=draw(st.sampled_from([0.1, 3.0, 12.0])), size=n_vocab)
    if draw(st.booleans()):
        row = row.round()
    if draw(st.booleans()):
        row[generator.random(n_vocab) < 0.4] = -np.inf
        row[draw(st.integers(0, n_vocab - 1))] = 1.0
    return row.astype(np.float32)


sampling_settings = st.builds(
    SamplingSettings,
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 2, 5, 39, 40, 399, 400, 10_000]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.95, 0.999, 1.0, 1.0]),
    min_p=st.sampled_from([0.0, 0.0, 0.01, 0.05, 0.5, 1.0]),
    repeat_penalty=st.sampled_from([1.0, 1.1, 1.5, 0.8]),
)


@common
@given(rows(), sampling_settings, st.data())
def test_warp_agrees_with_the_slow_reference(
    logits: NDArray[np.float32], settings: SamplingSettings, data: st.DataObject
) -> None:
    token = st.integers(0, len(logits) + 3)
    recent = data.draw(st.lists(token, max_size=PENALTY_WINDOW + 20))
    before = logits.copy()
    found = warp(logits, settings, recent)
    expected = reference(logits, settings, recent)
    assert np.array_equal(logits, before)
    assert (np.diff(found.ids) > 0).all()
    assert found.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assume(expected.margin > 1e-9)
    # Which of several equally likely tokens a border keeps is left open: compare the values.
    values = sorted(expected.probabilities.values())
    np.testing.assert_allclose(np.sort(found.probabilities), values, rtol=1e-9, atol=1e-300)
    kept_worst = min(expected.probabilities, key=lambda token: expected.probabilities[token])
    for token in expected.probabilities.keys() ^ set(found.ids.tolist()):
        assert expected.scores[token] == expected.scores[kept_worst]
    for token in expected.probabilities.keys() & set(found.ids.tolist()):
        assert found.of(token) == pytest.approx(expected.probabilities[token], rel=1e-9)


@pytest.mark.parametrize("n_vocab", [10, 6000])
def test_ties_at_the_border_of_top_k_go_to_the_lower_ids(n_vocab: int) -> None:
    logits = np.zeros(n_vocab, dtype=np.float32)
    logits[7] = 1.0
    kept = warp(logits, SamplingSettings(1.0, top_k=4, top_p=1.0, min_p=0.0))
    assert kept.ids.tolist() == [0, 1, 2, 7]


def test_ties_at_the_border_of_top_p_go_to_the_lower_ids() -> None:
    logits = np.random.default_rng(1).integers(-2, 3, 600).astype(np.float32)
    kept = warp(logits, SamplingSettings(1.0, top_k=0, top_p=0.5, min_p=0.0))
    order = np.argsort(-logits, kind="stable")
    assert kept.ids.tolist() == sorted(order[: len(kept.ids)].tolist())


@common
@given(rows(), sampling_settings)
def test_temperature_0_is_the_first_of_the_best(
    logits: NDArray[np.float32], settings: SamplingSettings
) -> None:
    greedy = SamplingSettings(0.0, settings.top_k, settings.top_p, settings.min_p)
    found = warp(logits, greedy)
    assert found.ids.tolist() == [int(logits.argmax())]
    assert found.probabilities.tolist() == [1.0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[0.0, np.nan, 1.0], [-np.inf] * 3, [0.0, np.inf, 1.0]])
def test_a_row_without_a_finite_best_is_an_error(bad: list[float], temperature: float) -> None:
    with pytest.raises(ModelError):
        warp(np.array(bad, dtype=np.float32), SamplingSettings(temperature))


def test_the_penalty_looks_at_the_last_64_tokens_only() -> None:
    logits = np.array([2.0, 1.0, 0.0], dtype=np.float32)
    settings = SamplingSettings(1.0, 0, 1.0, 0.0, repeat_penalty=2.0)
    inside = warp(logits, settings, [0] + [1] * 63)
    outside = warp(logits, settings, [0] + [1] * 64)
    only_one = warp(logits, settings, [1])
    assert outside.probabilities.tolist() == only_one.probabilities.tolist()
    assert inside.of(0) < outside.of(0)


def test_each_time_that_the_reply_has_a_token_counts_and_the_prompt_does_not() -> None:
    logits = np.array([2.0, -2.0, 1.0, 0.0], dtype=np.float32)
    settings = SamplingSettings(1.0, 0, 1.0, 0.0, presence_penalty=0.5, frequency_penalty=0.25)
    weights = np.exp([2.0 - 0.5 - 0.75, -2.0, 1.0 - 0.5 - 0.25, 0.0])
    found = Sampler(settings, prompt_tokens=2).distribution(logits, [1, 1, 0, 2], [0, 0])
    assert found.probabilities.tolist() == pytest.approx((weights / weights.sum()).tolist())


def test_a_bias_is_added_before_truncation_and_minus_100_bans() -> None:
    logits = np.array([3.0, 2.0, 1.0, -500.0], dtype=np.float32)
    settings = SamplingSettings(1.0, 2, 1.0, 0.0, logit_bias=((0, -100.0), (2, 2.5), (9, 5.0)))
    found = Sampler(settings).distribution(logits, [0])
    assert found.ids.tolist() == [1, 2]
    assert found.of(2) == pytest.approx(math.exp(1.5) / (1 + math.exp(1.5)))
    bans = replace(settings, temperature=0.0, logit_bias=tuple((i, -100.0) for i in range(3)))
    assert warp(logits, bans).ids.tolist() == [3]


def test_bans_yield_where_nothing_else_can_follow() -> None:
    logits = np.array([1.0, 2.0, -np.inf], dtype=np.float32)
    bans = replace(PLAIN, logit_bias=((0, -100.0), (1, -100.0)))
    assert warp(logits, bans).probabilities.tolist() == warp(logits, PLAIN).probabilities.tolist()


def test_a_bias_of_a_token_that_the_model_lacks_is_refused() -> None:
    settings = SamplingSettings(logit_bias=((9, 1.0),))
    settings.check_vocabulary(10)
    with pytest.raises(UsageError, match="does not exist"):
        settings.check_vocabulary(9)


@pytest.mark.parametrize(
    "changed", [{"presence_penalty": 0.1}, {"frequency_penalty": -0.1}, {"logit_bias": ((1, 1.0),)}]
)
def test_a_device_is_not_given_what_it_does_not_know(changed: dict[str, Any]) -> None:
    assert Sampler(PLAIN).warping is not None
    assert Sampler(replace(PLAIN, **changed)).warping is None


def test_in_another_vocabulary_tokens_are_neither_biased_nor_counted() -> None:
    logits = np.array([1.0, 2.0, 0.5], dtype=np.float32)
    settings = replace(PLAIN, presence_penalty=1.0, logit_bias=((0, 3.0),), repeat_penalty=1.5)
    found = Sampler(settings).q_draft_elsewhere(logits, [0, 1], [1])
    assert found is not None
    expected = warp(logits, replace(PLAIN, repeat_penalty=1.5), [0, 1, 1])
    assert found.probabilities.tolist() == expected.probabilities.tolist()


@st.composite
def distributions(draw: st.DrawFn) -> Distribution:
    ids = sorted(draw(st.sets(st.integers(0, 50), min_size=1, max_size=8)))
    weight = st.one_of(st.just(0.0), st.floats(1e-12, 1.0))
    weights = np.array(draw(st.lists(weight, min_size=len(ids), max_size=len(ids))))
    weights[draw(st.integers(0, len(ids) - 1))] = 1.0
    return Distribution(np.array(ids), weights / weights.sum())


@common
@given(distributions(), st.floats(0.0, 1.0, exclude_min=True))
def test_draw_inverts_the_cumulative_and_skips_zeros(law: Distribution, number: float) -> None:
    token = law.draw(number)
    below = law.probabilities[law.ids < token].sum()
    assert law.of(token) > 0.0
    assert below - 1e-12 <= number <= below + law.of(token) + 1e-12


@common
@given(distributions())
def test_draw_gives_possible_tokens_at_both_ends(law: Distribution) -> None:
    possible = law.ids[law.probabilities > 0.0]
    assert law.draw(1.0) == possible[-1]
    assert law.draw(2.0**-53) == possible[0]


@common
@given(distributions(), st.lists(st.integers(0, 60)))
def test_at_and_of_tell_the_same(law: Distribution, tokens: list[int]) -> None:
    listed = dict(zip(law.ids.tolist(), law.probabilities.tolist(), strict=True))
    expected = [listed.get(token, 0.0) for token in tokens]
    assert [law.of(token) for token in tokens] == expected
    assert law.at(np.array(tokens, dtype=np.int64)).tolist() == expected


def test_point_mass_is_all_on_one_token() -> None:
    law = point_mass(3)
    assert (law.of(3), law.of(2), law.of(4)) == (1.0, 0.0, 0.0)
    assert law.draw(0.3) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"temperature": 100.1},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"min_p": math.nan},
        {"repeat_penalty": 0.0},
        {"repeat_penalty": -1.0},
        {"repeat_penalty": math.inf},
        {"presence_penalty": 2.1},
        {"frequency_penalty": -2.1},
        {"frequency_penalty": math.nan},
        {"logit_bias": ((1, 100.5),)},
        {"logit_bias": ((1, math.nan),)},
        {"logit_bias": ((-1, 1.0),)},
        {"seed": -1},
        {"seed": 2**63},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"cannot be .*: it is "):
        SamplingSettings(**wrong)


def test_settings_at_their_bounds_are_taken() -> None:
    SamplingSettings(0.0, 0, 1.0, 0.0, 1.0, 0)
    SamplingSettings(100.0, 1 << 31, 1e-9, 1.0, 100.0, 2**63 - 1)


def test_a_seed_fixes_both_streams_and_another_changes_them() -> None:
    one, same, other = (Sampler(SamplingSettings(seed=seed)) for seed in (5, 5, 6))
    numbers = [
        (list(sampler.verification.random(4)), list(sampler.drafting.random(4)))
        for sampler in (one, same, other)
    ]
    assert numbers[0] == numbers[1]
    assert numbers[0][0] != numbers[2][0]
    assert numbers[0][1] != numbers[2][1]


def test_drafting_and_verification_do_not_share_numbers() -> None:
    sampler = Sampler(SamplingSettings(seed=1))
    drafting = set(sampler.drafting.random(100).tolist())
    assert drafting.isdisjoint(sampler.verification.random(100).tolist())


def test_drawing_for_a_draft_leaves_the_verification_stream_alone() -> None:
    one, other = Sampler(SamplingSettings(seed=1)), Sampler(SamplingSettings(seed=1))
    one.drafting.random(10)
    assert one.verification.random() == other.verification.random()


@common
@given(st.integers(0, 2**32), st.integers(0, 80), st.integers(0, 5))
def test_penalties_see_the_drafted_prefix(seed: int, n_history: int, n_drafted: int) -> None:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=20).astype(np.float32)
    text = generator.integers(0, 20, size=n_history + n_drafted).tolist()
    settings = SamplingSettings(1.0, 0, 1.0, 0.0, repeat_penalty=1.7)
    found = Sampler(settings).distribution(logits, text[:n_history], text[n_history:])
    expected = warp(logits, settings, text)
    assert found.probabilities.tolist() == expected.probabilities.tolist()


def test_where_min_p_alone_settles_it_the_outcome_is_that_of_every_border() -> None:
    """Bit by bit, on rows from clear to flat, some with ties at the borders."""
    random = np.random.default_rng(4)
    settled = Counter[bool]()
    for _ in range(600):
        row = random.normal(0.0, random.choice([0.5, 3.0, 9.0]), 500).astype(np.float32)
        row = np.round(row * 2) / 2 if random.random() < 0.3 else row
        row += random.choice([0.0, 1e5, -1e5])
        top_k, top_p = (
            int(random.choice([0, 1, 5, 40])),
            float(random.choice([0.3, 0.9, 0.95, 1.0])),
        )
        settings = SamplingSettings(0.8, top_k, top_p, float(random.choice([0.02, 0.1, 1.0])))
        ids, scores = _all_within_top_k(row, top_k)
        is_settled = truncation._by_min_p(np.exp(scores), settings) is not None
        settled[is_settled] += 1
        if top_p < 1.0:
            kept = truncation._by_top_p_first(np.exp(scores), settings)
            found = truncation._left(row, settings)
            assert found[0].tolist() == ids[kept].tolist()
            assert found[1].tolist() == scores[kept].tolist()
    assert min(settled[True], settled[False]) > 100


def _all_within_top_k(
    row: NDArray[np.float32], top_k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """By a sort of all tokens; minus infinity is never among the likeliest."""
    ids = np.arange(len(row))
    if top_k:
        ids = np.sort(np.argsort(-row, kind="stable")[:top_k])
        ids = ids[row[ids] > -np.inf]
    return ids, row[ids].astype(np.float64) - float(row.max())


@pytest.mark.parametrize("n_vocab", [300, 5_000, 40_011])
@pytest.mark.parametrize("possible", [1.0, 0.5, 0.001])
def test_the_likeliest_of_many_are_those_of_a_sort(n_vocab: int, possible: float) -> None:
    """Rows with and without ties, with tokens that a grammar rules out, the best at either end."""
    random = np.random.default_rng(n_vocab)
    for top_k in (1, 2, 40, 200):
        row = random.normal(0.0, 3.0, n_vocab).astype(np.float32)
        row = np.round(row) if top_k == 40 else row
        row[random.random(n_vocab) >= possible] = -np.inf
        row[-1 if top_k > 1 else 0] = 20.0
        ids, scores = _all_within_top_k(row, top_k)
        found = truncation._most_likely(row, top_k)
        assert found[0].tolist() == ids.tolist()
        assert found[1].tolist() == scores.tolist()
        row[7] = np.nan
        with pytest.raises(ModelError):
            truncation._most_likely(row, top_k)
