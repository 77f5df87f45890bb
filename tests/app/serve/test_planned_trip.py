"""What drafting gains where the model is a trip away: as planned, in simulated time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.base import Context, Logits
from decoding.drafters.draft_model import DraftModel
from decoding.estimation.calibration import calibrate
from decoding.estimation.cost import CostModel, DraftCost
from decoding.events import State, Step
from decoding.generation import Limits, always, generate
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import SamplingSettings
from tests.app.serve.test_exact_elsewhere import elsewhere
from tests.decoding.conftest import FakeContext, random_table

pytestmark = pytest.mark.slow
N_VOCAB, TOKENS, SINGLE = 8, 1000, 0.03
SETTINGS = SamplingSettings(temperature=0.6, top_k=0, top_p=1.0, min_p=0.0, seed=4)
TABLE = random_table(3, N_VOCAB, scale=2.0)
GUESSED = TABLE + random_table(4, N_VOCAB, scale=0.7)


@dataclass
class Time:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(FakeContext):
    """Passes that take `single` seconds, and a share of that for each further token."""

    def __init__(
        self, table: NDArray[np.float32], time: Time, single: float, slope: float, trip: float = 0.0
    ) -> None:
        super().__init__(table, n_ctx=4 * TOKENS)
        self.time, self.single, self.slope, self.trip = time, single, slope, trip

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        self.time.now += self.trip + self.single * (1.0 + self.slope * (len(tokens) - 1))
        return super().forward(tokens, n_logits)


@dataclass(frozen=True)
class Gain:
    """How many times as fast as plain: by the costs that it plans with, and as it was."""

    planned: float
    was: float
    state: State


def gain(context: Context, time: Time, single: float, draw: float = 0.003) -> Gain:
    """Of a drafter model that takes `draw` seconds a token. single: of a plain step."""
    costs = CostModel(calibrate(context, list(range(N_VOCAB)) * 20, time))
    assert costs.seconds(1) == pytest.approx(single)
    draft = DraftModel("model", Timed(GUESSED, time, draw, 0.0), n_vocab=N_VOCAB, is_certain=True)
    managed = ManagedDrafter(draft, cost=DraftCost(draw, draw))
    controller = Controller([managed], costs, N_VOCAB, time)
    limits = Limits(TOKENS, frozenset())
    for _ in generate(context, [1, 2], SETTINGS, limits, drafters=always(controller), clock=time):
        pass
    begun, planned = time.now, 0.0
    events = generate(context, [2, 1], SETTINGS, limits, drafters=always(controller), clock=time)
    for event in events:
        if isinstance(event, Step):
            planned += costs.seconds(event.passed) + draw * event.drafted
    alone = TOKENS * single
    return Gain(alone / planned, alone / (time.now - begun), controller.statuses[0].state)


def gain_elsewhere(trip: float, slope: float) -> Gain:
    time = Time()

    def travel() -> None:
        time.now += trip

    there = Timed(TABLE, time, SINGLE, slope)
    with_trip = elsewhere(there, travel).open(there.n_ctx)
    return gain(with_trip, time, SINGLE + trip)


@pytest.mark.parametrize("trip", [0.001, 0.03, 0.1])
def test_the_gain_is_as_planned_and_as_simulated(trip: float) -> None:
    """The simulation is a model here whose passes take so much longer."""
    found = gain_elsewhere(trip, slope=0.15)
    time = Time()
    simulated = gain(Timed(TABLE, time, SINGLE, 0.15, trip), time, SINGLE + trip)
    assert found.state is State.ON
    assert found.was > 1.2
    assert found.was == pytest.approx(simulated.was, rel=0.05)
    assert found.was == pytest.approx(found.planned, rel=0.05)


def test_a_drafter_that_does_not_pay_is_parked_until_the_trip_makes_it_pay() -> None:
    close, far = gain_elsewhere(0.0, slope=1.0), gain_elsewhere(0.1, slope=1.0)
    assert close.state is State.PAUSED
    assert close.was > 0.97
    assert far.state is State.ON
    assert far.was > 1.2
