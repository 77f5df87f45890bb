"""The controller and a draft with a tail: what is sent, and what it is said to cost."""

from collections.abc import Sequence

import pytest

from decoding.draft import Draft, KeepOn, SampledLine
from decoding.estimation.cost import CostModel, DraftCost
from decoding.events import Step
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import SamplingSettings, point_mass
from decoding.sampling.sampler import Sampler
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.forms import distributions_in

N_VOCAB = 10
FLAT = CostModel({1: 1.0, 16: 1.01})
RISING = CostModel({1: 1.0, 2: 1.05, 3: 2.5, 16: 16.0})


class WithTail(IdleDrafter):
    """Draws a token, and has four more that are certain and of this confidence."""

    name = "with tail"
    is_free = False

    def __init__(self, confidence: float) -> None:
        self._confidence = confidence

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        tokens = (1, 2, 3, 4, 5)[:limit]
        tail = len(tokens) - 1
        return Draft(
            SampledLine(tokens, tuple(map(point_mass, tokens)), prunable_suffix=tail),
            self.name,
            (0.95, *[self._confidence] * tail),
            (9, *[1000] * tail),
        )


def drafted(confidence: float, costs: CostModel) -> tuple[Controller, Draft]:
    managed = ManagedDrafter(WithTail(confidence), cost=DraftCost(0.01, 0.001))
    controller = Controller([managed], costs, N_VOCAB, clock=lambda: 0.0)
    controller.begin([7], Sampler(SamplingSettings(1.0)))
    controller.commit([7])
    return controller, controller.propose([7], 8)


@pytest.mark.parametrize(
    ("confidence", "costs", "sent"), [(0.9, FLAT, 5), (0.9, RISING, 1), (0.01, FLAT, 2)]
)
def test_as_much_of_a_tail_is_sent_as_pays(confidence: float, costs: CostModel, sent: int) -> None:
    _, draft = drafted(confidence, costs)
    assert draft.tokens == (1, 2, 3, 4, 5)[:sent]
    assert draft.form.prunable_suffix == sent - 1
    assert len(distributions_in(draft)) == len(draft.evidence) == sent


def test_a_tail_takes_no_time_that_the_drawn_tokens_did_not() -> None:
    controller, draft = drafted(0.9, CostModel({1: 1.0, 16: 1.01}))
    assert len(draft) == 5
    cost = controller.drafters[0].cost
    assert cost is not None
    before = cost.draw_seconds
    controller.observe(Step((1, 2, 3, 4, 5, 6), "with tail", 5, 5, 0.01, 1.0, 1.01, 2.0))
    assert cost.draw_seconds == pytest.approx(before), "one token was drawn in the time of one"
