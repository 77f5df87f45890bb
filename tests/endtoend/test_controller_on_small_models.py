"""A controller over drafters on small models: what it makes of a full one, and of several."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from backends.base import Context, Model
from decoding.checks.distribution_check import divergences
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.estimation.cost import CostModel, DraftCost, Measured
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.pausing import State
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.replied import said
from tests.fixtures.retimed import retimed
from tests.fixtures.rounding import rounding

N_CTX, DRAFTER_CTX = 256, 64
PROMPT = [300, 301, 302, 303, 300, 301]
FLAT = {1: 1.0, 64: 1.2}
FULL = f"full: its context is {DRAFTER_CTX} tokens"


@pytest.fixture
def model(tiny_llama: Callable[..., Path], llamacpp: ModuleType) -> Iterator[Model]:
    with closing(llamacpp.load(tiny_llama(seed=1))) as model:
        yield model


def reply(context: Context, tokens: int, controller: Controller) -> tuple[list[Step], list[str]]:
    """The steps of a greedy reply, and what was said of the drafter model at each."""
    context.truncate(0)  # as plain decoding would find it
    steps: list[Step] = []
    reasons: list[str] = []
    greedy, limits = SamplingSettings(temperature=0.0), Limits(tokens, frozenset())
    timed = always(retimed(controller))
    for event in generate(context, PROMPT, greedy, limits, drafters=timed):
        if not isinstance(event, Step):
            continue
        steps.append(event)
        standing = controller.statuses[-1]
        assert not standing.reason or standing.state is State.PAUSED
        reasons.append(standing.reason)
    return steps, reasons


def test_when_a_drafters_context_is_full_the_reply_goes_on_without_it(model: Model) -> None:
    """And the next reply has it again."""
    with closing(model.open(N_CTX)) as context, closing(model.open(DRAFTER_CTX)) as drafting:
        cost = DraftCost(0.001, 0.0001)
        drafter = DraftModel("model", drafting, n_vocab=model.info.n_vocab)
        drafters = [ManagedDrafter(PromptLookup()), ManagedDrafter(drafter, cost=cost)]
        controller = Controller(
            drafters, CostModel(Measured(FLAT)), model.info.n_vocab, lambda: 0.0
        )
        for _ in range(2):
            steps, reasons = reply(context, 200, controller)
            allowed = 2 * rounding(context, PROMPT)
            assert all(one.margin <= allowed for one in divergences(context, PROMPT, said(steps)))
            starts = [len(PROMPT) + len(said(steps[:place])) for place in range(len(steps))]
            late = sum(start < DRAFTER_CTX for start in starts)
            assert 0 < late < len(steps) - 1
            assert FULL not in reasons[:late]
            assert set(reasons[late:-1]) == {FULL}, "the last step has no room for a draft"
            drafters = [step.drafter for step in steps]
            assert "model" in drafters[:late]
            assert "lookup" in drafters[late:]
            assert "model" not in drafters[late:]
