"""What an assistant drafts on MLX: as on llama.cpp, and replies stay those of the model."""

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from decoding.checks.greedy_check import divergences
from decoding.drafters.draft_model import DraftModel
from decoding.generation import Limits
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.chance import chance
from tests.fixtures.replied import replied, said
from tests.fixtures.tiny import head_pair
from tests.fixtures.tiny.assisted_pair import Assisted, MlxPair, opened
from tests.fixtures.tiny.head_run import PROMPT
from tests.fixtures.tiny.kinds import Tiny

GREEDY = SamplingSettings(temperature=0.0)
SAMPLED = SamplingSettings(1.0, top_k=2)
LIMITS = Limits(48, frozenset())
LAST, THEN = 305, [130, 201, 299]
CLUSTERS = 6

ROUNDING = 1e-3
"""Logits of passes of other lengths differ, as sums are in another order."""

HALF_PRECISION = 0.02
"""What llama.cpp's keys and values of 11 bits may move logits; another text moves them by 1."""

ALARM = 1e-4
"""A right program fails below it once in 10,000 times."""


def drafter_of(pair: MlxPair) -> DraftModel:
    return DraftModel("assistant", pair.drafts, n_vocab=pair.model.info.n_vocab, max_draft=4)


def prompts(count: int) -> Iterator[list[int]]:
    """Random prompts of a few words that repeat."""
    random = np.random.default_rng(0)
    for _ in range(count):
        yield random.choice(random.integers(3, 300, 12), 40).tolist()


@pytest.mark.parametrize("text", [list(PROMPT), *prompts(2)], ids=len)
def test_the_same_weights_draft_alike_on_both_engines(
    assisted: Assisted, tiny: Tiny, text: list[int]
) -> None:
    """Also of texts longer than the window."""
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    with (
        opened(assisted()) as pair,
        head_pair.opened(tiny("gemma4"), tiny("gemma4-assistant")) as other,
    ):
        read = pair.context.forward(text, 1).copy()
        assert np.abs(read - other.context.forward(text, 1)).max() < HALF_PRECISION
        after = [*text, LAST, *THEN]
        found = pair.drafts.forward(after, 1 + len(THEN)).copy()
        expected = other.drafts.forward(after, 1 + len(THEN))
        assert np.abs(found - expected).max() < HALF_PRECISION
        assert np.abs(found[0] - found[1]).max() > 1, "logits that are all alike prove nothing"


@pytest.mark.parametrize(
    ("clusters", "count"),
    [(0, 1), *(pytest.param(clusters, 4, marks=pytest.mark.slow) for clusters in (0, CLUSTERS))],
)
def test_greedy_replies_are_plain_ones(assisted: Assisted, clusters: int, count: int) -> None:
    proposed, accepted = 0, 0
    with opened(assisted(talkative=True, clusters=clusters)) as pair:
        drafter = drafter_of(pair)
        for prompt in prompts(count):
            found = replied(pair.context, prompt, GREEDY, LIMITS, drafter)
            plain = replied(pair.context, prompt, GREEDY, LIMITS, None)
            proposed += sum(step.drafted for step in found)
            accepted += sum(step.accepted for step in found)
            if said(found) != said(plain):
                for turned in divergences(pair.context, prompt, said(found)):
                    assert turned.margin < ROUNDING
    assert proposed > count * LIMITS.max_tokens
    assert accepted > 0


@pytest.mark.parametrize(
    ("clusters", "on_device", "count"),
    [
        (0, True, 40),
        *(
            pytest.param(clusters, on_device, 100, marks=pytest.mark.slow)
            for clusters, on_device in ((0, True), (0, False), (CLUSTERS, True))
        ),
    ],
)
def test_sampled_replies_follow_the_models_own_law(
    assisted: Assisted,
    clusters: int,
    on_device: bool,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(assisted(talkative=True, clusters=clusters)) as pair:
        if not on_device:
            monkeypatch.setattr(pair.drafts, "device_sampling", None)
        found = chance(
            pair.context, list(PROMPT), SAMPLED, drafter_of(pair), count, more=3, accepted=0.05
        )
    assert found >= ALARM
