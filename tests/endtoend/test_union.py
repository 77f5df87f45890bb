"""Trees of several free drafters on a small model in llama.cpp: plain decoding's tokens."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context
from decoding.checks.greedy_check import branch_difference, divergences
from decoding.draft import Drafter
from decoding.estimation.cost import CostModel
from decoding.events import Shape, Step
from decoding.generation import Limits
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.drafters import Rehearsed
from tests.fixtures.replied import replied, said

GREEDY = SamplingSettings(temperature=0.0)
FLAT = {1: 1.0, 16: 1.01}
PROMPT = [1, *range(40, 72)]
TOKENS = 120


def steps(context: Context, drafter: Drafter | None) -> list[Step]:
    return replied(context, PROMPT, GREEDY, Limits(TOKENS, frozenset()), drafter)


def test_greedy_replies_are_plain_ones(tiny_llama: Callable[..., Path]) -> None:
    """But where two tokens are as good as equal: after a branch the cache is in another order."""
    model = llamacpp.load(tiny_llama())
    context = model.open(256)
    plain = said(steps(context, None))
    text = [*PROMPT, *plain]
    drafters = [Rehearsed("third", text, 3), Rehearsed("fourth", text, 4)]
    controller = Controller(
        [ManagedDrafter(one) for one in drafters],
        CostModel(FLAT),
        model.info.n_vocab,
        clock=lambda: 0.0,
        max_branches=context.max_branches,
    )
    found = steps(context, controller)
    trees = [step for step in found if step.shape is Shape.TREE]
    assert sum(step.accepted for step in trees) > 20
    allowed = 2 * branch_difference(context, PROMPT)
    assert all(one.margin <= allowed for one in divergences(context, PROMPT, said(found)))
    context.close()
    model.close()
