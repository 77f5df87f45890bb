"""tree(self) and paths(self) on a small MLX model say what plain decoding says, and are right."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx_lm", reason="MLX is not installed")

from app.paths import Paths
from backends import mlx
from tests.endtoend.test_guessing import drafting_by, said, steps
from tests.fixtures.first_hit import first_hit_of
from tests.fixtures.mlx_models import N_VOCAB

SmallMlx = Callable[..., Path]


@pytest.mark.usefixtures("drafting_never_pays")
@pytest.mark.parametrize(
    "spec", ["tree(self)", "tree(self):children=drawn,nodes=5,depth=2", "paths(self)"]
)
def test_greedy_replies_are_plain_ones(spec: str, small_mlx: SmallMlx, home: Path):
    model = mlx.load(small_mlx("plain"))
    context = model.open(256)
    prompt = np.random.default_rng(1).integers(3, N_VOCAB, 12).tolist()
    expected = said(steps(context, prompt, 40, None))
    with drafting_by(spec, model, context, Paths.of_this_user()) as drafting:
        assert drafting.missing == ""
        found = steps(context, prompt, 40, first_hit_of(drafting))
    assert said(found) == expected
    assert sum(step.accepted for step in found) > 0


@pytest.mark.usefixtures("drafting_never_pays")
def test_a_model_with_a_running_state_says_why(small_mlx: SmallMlx, home: Path):
    model = mlx.load(small_mlx("hybrid"))
    with drafting_by("tree(self)", model, model.open(64), Paths.of_this_user()) as drafting:
        assert "running state" in drafting.status.reason
