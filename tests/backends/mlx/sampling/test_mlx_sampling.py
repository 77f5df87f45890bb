"""Drafting and judging on the device, through the loop: the reference's replies, exactly drawn."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decoding.draft import DeviceLine, SampledLine, on_host

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from backends import mlx
from backends.base import ModelError, Warping
from backends.mlx import device_sampling as device_verification
from backends.mlx.context import MlxContext
from backends.mlx.device_sampling import Block
from backends.mlx.device_warping import Weights
from decoding.checks.distribution_check import ReplyDistribution, exact_distribution, p_value
from decoding.draft import Draft
from decoding.drafters.draft_model import DraftModel
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.chance import SHORT, replies

FALSE_ALARM = 1e-4
REPLIES = 500
PROMPT = [7, 40, 8, 40, 7]
SETTINGS = SamplingSettings(1.0, top_k=6, top_p=0.97, min_p=0.02)
FEW = SamplingSettings(1.0, top_k=4, top_p=0.97, min_p=0.02)
"""Settings that leave few outcomes, so that few replies tell a wrong law."""

Pair = tuple[MlxContext, MlxContext, int]


@pytest.fixture(scope="module")
def pair(small_mlx: Callable[..., Path]) -> Iterator[Pair]:
    """A model of random weights and a disturbed copy: they agree in part."""
    target = mlx.load(small_mlx("plain", seed=3))
    drafter = mlx.load(small_mlx("plain", seed=3, noise=0.2))
    yield target.open(128), drafter.open(128), target.info.n_vocab
    target.close()
    drafter.close()


def steps(pair: Pair, settings: SamplingSettings, drafter: DraftModel | None) -> list[Step]:
    events = generate(pair[0], PROMPT, settings, Limits(20, frozenset()), drafters=always(drafter))
    return [event for event in events if isinstance(event, Step)]


def model(pair: Pair, ends: frozenset[int] = frozenset()) -> DraftModel:
    return DraftModel("m", pair[1], n_vocab=pair[2], end_tokens=ends, max_draft=4)


def what(one: Step) -> tuple[tuple[int, ...], int, int]:
    return one.tokens, one.drafted, one.accepted


@pytest.mark.parametrize(
    "settings",
    [SamplingSettings(0.0), SamplingSettings(1.0, 0, 1.0, 0.0), SamplingSettings(0.8, 40, 0.9)],
    ids=["greedy", "dense", "every border"],
)
@pytest.mark.parametrize("on_device", [(True, True), (True, False), (False, True)], ids=str)
def test_a_seed_gives_the_reply_of_the_reference(
    pair: Pair,
    settings: SamplingSettings,
    on_device: tuple[bool, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Step for step, whether the target, the drafter or both stay on the device."""
    for seed in range(2):
        seeded = replace(settings, seed=seed)
        found = []
        for choice in ((False, False), on_device):
            with monkeypatch.context() as patch:
                for context, stays in zip(pair[:2], choice, strict=True):
                    if not stays:
                        patch.setattr(context, "device_sampling", None)
                found.append([*map(what, steps(pair, seeded, model(pair)))])
                found.append([*map(what, steps(pair, seeded, None))])
        assert found[:2] == found[2:]
        assert any(accepted > 0 for _, _, accepted in found[0])
        assert any(accepted < drafted for _, drafted, accepted in found[0])


def test_with_a_repetition_penalty_the_reference_draws(pair: Pair) -> None:
    settings = replace(SETTINGS, repeat_penalty=1.3)
    drafter = model(pair)
    drafter.begin(PROMPT, Sampler(settings))
    assert isinstance(drafter.propose(PROMPT, 4).form, SampledLine)
    assert sum(step.accepted for step in steps(pair, settings, model(pair))) > 0


def proposed(pair: Pair, ends: frozenset[int], seed: int = 0) -> tuple[Draft, float]:
    """A draft, and the number that its stream of random numbers gives next."""
    sampler = Sampler(replace(SETTINGS, seed=seed))
    drafter = model(pair, ends)
    drafter.begin(PROMPT, sampler)
    return drafter.propose(PROMPT, 4), sampler.drafting.random()


@pytest.mark.parametrize("place", [0, 2])
def test_a_draft_ends_with_an_end_token_as_that_of_the_reference(
    pair: Pair, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = proposed(pair, frozenset())
    assert len(whole) == 4
    assert len(set(whole.tokens)) == 4, "choose another seed"
    ends = frozenset({whole.tokens[place]})
    cut, following = proposed(pair, ends)
    monkeypatch.setattr(pair[1], "device_sampling", None)
    reference, expected = proposed(pair, ends)
    assert cut.tokens == reference.tokens == whole.tokens[: place + 1]
    assert following == expected
    assert cut.confidence == pytest.approx(reference.confidence, abs=1e-5)
    assert isinstance(cut.form, DeviceLine)
    line = on_host(cut.form)
    assert isinstance(line, SampledLine)
    assert len(line.distributions) == len(cut)


def test_no_token_drawn_is_thrown_away_where_drawing_is_stopped(pair: Pair) -> None:
    asked: list[float] = []

    def keep_on(confidence: float, evidence: int) -> bool:
        asked.append(confidence)
        return len(asked) < 3

    drafter = model(pair)
    drafter.begin(PROMPT, Sampler(SETTINGS))
    draft = drafter.propose(PROMPT, 4, keep_on)
    assert len(asked) == len(draft) == 4, "two are drawn at once"
    assert list(pair[1].tokens) == [*PROMPT, *draft.tokens[:-1]]


def test_a_prompt_longer_than_one_pass_is_read_before_drafting(pair: Pair) -> None:
    drafter = model(pair)
    pair[1].truncate(0)
    drafter.begin(PROMPT, Sampler(SETTINGS))
    expected = drafter.propose(PROMPT, 4).tokens
    pair[1].truncate(0)
    pair[1].n_chunk, whole = 2, pair[1].n_chunk
    try:
        drafter.begin(PROMPT, Sampler(SETTINGS))
        assert drafter.propose(PROMPT, 4).tokens == expected
    finally:
        pair[1].n_chunk = whole


def test_scores_that_are_no_numbers_are_an_error(small_mlx: Callable[..., Path]) -> None:
    broken = mlx.load(small_mlx("plain", seed=3))
    assert broken.module is not None
    broken.module.load_weights([("model.norm.weight", mx.full(64, float("nan")))], strict=False)
    context = broken.open(32)
    sampling = context.device_sampling
    assert sampling is not None
    warping, numbers = Warping(1.0, 40, 1.0, 0.0), np.full(2, 0.5)
    with pytest.raises(ModelError, match="no usable scores"):
        sampling.draft([1], warping, numbers, broken.info.n_vocab)
    with pytest.raises(ModelError, match="no usable scores"):
        sampling.verify([1], [2], None, warping, numbers)
    broken.close()


def law_and_draws(
    pair: Pair, near: MlxContext
) -> tuple[ReplyDistribution, Counter[tuple[int, ...]]]:
    law = exact_distribution(pair[0], PROMPT, FEW, SHORT)
    drafter = DraftModel("near", near, n_vocab=pair[2], max_draft=2)
    outcomes = replies(pair[0], PROMPT, FEW, drafter, REPLIES)
    return law, Counter(outcome for outcome, _ in outcomes)


@pytest.fixture(scope="module")
def near(small_mlx: Callable[..., Path]) -> Iterator[MlxContext]:
    """A drafter that is often rejected for small differences: there the residual matters most."""
    drafter = mlx.load(small_mlx("plain", seed=3, noise=0.1))
    yield drafter.open(32)
    drafter.close()


def test_replies_follow_the_law_of_the_target(pair: Pair, near: MlxContext) -> None:
    """Pearson's chi-square, with false alarms for one choice of seeds in 10,000; they are fixed."""
    assert p_value(*law_and_draws(pair, near)) > FALSE_ALARM


def test_control_the_same_test_rejects_resampling_from_the_target(
    pair: Pair, near: MlxContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = device_verification.weigh

    def whole(target: Weights, drafted: mx.array, q_draft: mx.array) -> Block:
        block = right(target, drafted, q_draft)
        return replace(block, left=mx.zeros_like(block.left))

    monkeypatch.setattr(device_verification, "weigh", whole)
    assert p_value(*law_and_draws(pair, near)) < FALSE_ALARM
