"""Guesses, trees and paths on small MLX models: plain decoding's tokens, with drafts that stand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx_lm", reason="MLX is not installed")

from app.paths import Paths
from backends import mlx
from decoding.drafters.lookahead import Jacobi
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import SamplingSettings
from tests.endtoend.test_guessing import drafting_by, said, steps
from tests.fixtures.first_hit import first_hit_of
from tests.fixtures.mlx_models import N_VOCAB

SmallMlx = Callable[..., Path]


@pytest.mark.usefixtures("drafting_never_pays")
@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("plain", "jacobi"),
        ("sliding", "jacobi"),
        ("plain", "lookahead"),
        ("sliding", "lookahead"),
        ("plain", "tree(self)"),
        ("plain", "tree(self):children=drawn,nodes=5,depth=2"),
        ("plain", "paths(self)"),
    ],
)
def test_greedy_replies_are_plain_ones(kind: str, spec: str, small_mlx: SmallMlx, home: Path):
    model = mlx.load(small_mlx(kind))
    context = model.open(256)
    prompt = np.random.default_rng(1).integers(3, N_VOCAB, 12).tolist()
    expected = said(steps(context, prompt, 60, None))
    with drafting_by(spec, model, context, Paths.of_this_user()) as drafting:
        assert drafting.missing == ""
        found = steps(context, prompt, 60, first_hit_of(drafting))
    assert said(found) == expected
    if "self" in spec:
        assert sum(step.accepted for step in found) > 0
    else:
        assert sum(step.passed for step in found) > len(found) + 60


@pytest.mark.usefixtures("drafting_never_pays")
@pytest.mark.parametrize("spec", ["lookahead", "tree(self)"])
def test_a_model_with_a_running_state_says_why(spec: str, small_mlx: SmallMlx, home: Path):
    model = mlx.load(small_mlx("hybrid"))
    with drafting_by(spec, model, model.open(64), Paths.of_this_user()) as drafting:
        assert "running state" in drafting.status.reason


def test_what_is_heard_on_the_device_is_what_is_heard_of_rows(small_mlx: SmallMlx):
    """A seed gives the same text and the same guesses, judged on the device or not."""
    context = mlx.load(small_mlx("plain")).open(256)
    replies: list[list[Step]] = []
    device = context.device_sampling
    for on_device in (device, None):
        context.device_sampling = on_device
        context.truncate(0)
        settings, limits = SamplingSettings(temperature=0.5, seed=3), Limits(40, frozenset())
        events = generate(
            context, [5, 6, 7], settings, limits, drafters=always(Jacobi(max_draft=4))
        )
        replies.append([event for event in events if isinstance(event, Step)])
    ours, theirs = replies
    assert said(ours) == said(theirs)
    assert [step.accepted for step in ours] == [step.accepted for step in theirs]
