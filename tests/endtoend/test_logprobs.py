"""Log probabilities of a reply, through both engines: those of one plain pass over its text."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

from backends.base import Context, Model
from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.trees import DynamicTree
from decoding.estimation.cost import TreeSize
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.settings import SamplingSettings

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = [200, 201, 202, 203, 200, 201]
LENGTH = 24
ROUNDING = 0.02
"""How far they may be apart: llama.cpp keeps a tree's tokens in another order than a line's, and
its sums then round otherwise, by up to 0.003 here. Another row differs by about 1."""
ON_DEVICE = SamplingSettings(0.5, top_k=4, top_p=0.97, min_p=0.0, seed=2)

Pair = tuple[Model, Model]


@pytest.fixture(params=["llamacpp", "mlx"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A model of random weights and a disturbed copy of it."""
    with ExitStack() as stack:
        if request.param == "llamacpp":
            engine = request.getfixturevalue("llamacpp")
            tiny: Callable[..., Path] = request.getfixturevalue("tiny_llama")
            files = tiny(seed=1), tiny(seed=1, noise=0.02)
            models = [engine.load(file, threads=1) for file in files]
        else:
            pytest.importorskip("mlx.core", reason="MLX is not installed")
            from backends import mlx

            small: Callable[..., Path] = request.getfixturevalue("small_mlx")
            models = [mlx.load(small("plain")), mlx.load(small("plain", noise=0.02))]
        for model in models:
            stack.enter_context(closing(model))
        yield models[0], models[1]


def line(model: Model, context: Context) -> Drafter:
    return DraftModel("line", context, n_vocab=model.info.n_vocab, max_draft=4)


def tree(model: Model, context: Context) -> Drafter:
    return DynamicTree("tree", context, TreeSize(3, 6), n_vocab=model.info.n_vocab)


@pytest.mark.parametrize("drafted_by", [None, line, tree])
def test_they_are_those_of_a_plain_pass_over_the_text(
    pair: Pair, drafted_by: Callable[[Model, Context], Drafter] | None
) -> None:
    model, small = pair
    with closing(model.open(96)) as context, closing(small.open(96)) as beside:
        if drafted_by is tree and not context.can_verify_tree:
            pytest.skip(context.tree_refusal)
        drafter = drafted_by(small, beside) if drafted_by is not None else None
        limits = Limits(LENGTH, frozenset())
        events = generate(
            context, PROMPT, ON_DEVICE, limits, drafters=always(drafter), top_logprobs=5
        )
        steps = [event for event in events if isinstance(event, Step)]
        told = [one for step in steps for one in step.logprobs]
        tokens = [token for step in steps for token in step.tokens]
        assert len(told) == len(tokens) == LENGTH
        assert drafter is None or sum(step.accepted for step in steps) > 0
        assert not any(step.on_device for step in steps)
        context.truncate(0)
        rows = context.forward([*PROMPT, *tokens[:-1]], LENGTH).astype(np.float64)
    expected = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    assert [one.token for one in told] == tokens
    found = [one.logprob for one in told]
    assert found == pytest.approx(expected[range(LENGTH), tokens], abs=ROUNDING)
    for one, row in zip(told, expected, strict=True):
        best = np.sort(row)[::-1][:5]
        assert [logprob for _, logprob in one.top] == pytest.approx(best, abs=ROUNDING)
