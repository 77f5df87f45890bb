"""mlx-lm's own generation, which the bench compares with."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import Model, Warping
from backends.engines.model_loading import baseline_engines

SmallMlx = Callable[..., Path]
PROMPT = [10, 20, 30, 40]
GREEDY = Warping(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
SEED = 1


@pytest.fixture
def model(small_mlx: SmallMlx) -> Iterator[Model]:
    model = mlx.load(small_mlx("plain"))
    yield model
    model.close()


def greedy(model: Model, count: int) -> list[int]:
    context = model.open(128)
    tokens = list(PROMPT)
    row = context.forward(tokens, 1)
    for _ in range(count):
        tokens.append(int(np.argmax(row[0])))
        row = context.forward(tokens[-1:], 1)
    context.close()
    return tokens[len(PROMPT) :]


def test_it_says_what_the_model_says(model: Model, small_mlx: SmallMlx) -> None:
    drafter = mlx.load(small_mlx("plain", noise=0.1))
    found = [*baseline_engines(model, 128, drafter)]
    assert [one.name for one in found] == ["mlx-lm", "mlx-lm speculative"]
    for one in found:
        said = one.reply(PROMPT, GREEDY, SEED, max_tokens=12, ends=lambda token: False)
        assert said.tokens == greedy(model, 12)
        assert min(said.ttft_seconds, said.seconds) > 0.0
        one.close()
    drafter.close()


def test_it_ends_where_the_model_ends(model: Model) -> None:
    (plain,) = baseline_engines(model, 128, None)
    said = greedy(model, 3)
    found = plain.reply(PROMPT, GREEDY, SEED, max_tokens=12, ends=lambda token: token == said[2])
    assert found.tokens == said[: said.index(said[2]) + 1]
