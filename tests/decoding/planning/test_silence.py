"""A drafter with nothing to say: others draft in its place, and it pays for having been asked."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn
from decoding.drafters.cascade import Cascade, Vote
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.estimation.cost import CostModel, DraftCost, Measured
from decoding.events import Cause, EmptyDraft, Step
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.pausing import DrafterStatus, State, drafter_status, is_promising
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from decoding.telemetry import Statistics
from tests.fixtures.branching import MAKERS
from tests.fixtures.enumeration import N_VOCAB as N_TABLE
from tests.fixtures.simulated_text import N_VOCAB, Text, constant
from tests.fixtures.simulator import (
    CURVES,
    PLAIN_SECONDS,
    Clock,
    CostlyDrafter,
    Log,
    Machine,
    costs_of,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tests.decoding.conftest import FakeContext

SAMPLER = Sampler(SamplingSettings(temperature=0.0))
DRAW = 0.02
"""In plain steps."""


class FallsSilent(CostlyDrafter):
    """Drafts up to a place in the text, and has nothing to say after it."""

    def __init__(
        self, text: Text, clock: Clock, cost: DraftCost, until: int, takes: float, *, says_so: bool
    ) -> None:
        super().__init__(text, clock, cost)
        self._until, self._takes, self._says_so = until, takes, says_so
        self.in_vain = 0

    def refusal(self, history: Sequence[int]) -> str:
        return "full: it holds no more" if self._says_so and len(history) >= self._until else ""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        if len(history) < self._until:
            return super().propose(history, limit, keep_on)
        self.in_vain += 1
        self._clock.now += self._takes * PLAIN_SECONDS
        return NO_DRAFT


def with_a_model(
    machine: Machine, *, until: int = 0, takes: float = 0.0, says_so: bool = False
) -> FallsSilent:
    """Puts a drafter model beside a machine's own, right at 0.97 until it falls silent."""
    cost = DraftCost(DRAW * PLAIN_SECONDS, 0.0)
    text = Text(constant(0.97, 11), 0)
    text.tokens = machine.text.tokens
    drafter = FallsSilent(text, machine.clock, cost, until, takes, says_so=says_so)
    drafters = [*machine.controller.drafters, ManagedDrafter(drafter, cost=cost, prior=0.97)]
    costs = costs_of(CURVES["flat"])
    machine.controller = Controller(drafters, costs, N_VOCAB, machine.clock)
    return drafter


def lookup_alone() -> Machine:
    return Machine(constant(0.85, 3), CURVES["flat"])


@pytest.mark.parametrize("until", [0, 1500], ids=["always", "in mid-reply"])
@pytest.mark.parametrize("takes", [0.0, DRAW])
@pytest.mark.parametrize("says_so", [True, False], ids=["says so", "does not"])
def test_beside_a_silent_model_a_free_drafter_drafts_as_if_it_were_alone(
    until: int, takes: float, says_so: bool
) -> None:
    alone = lookup_alone().run(tokens=8000).speedup()
    machine = lookup_alone()
    drafter = with_a_model(machine, until=until, takes=takes, says_so=says_so)
    assert machine.run(tokens=8000).speedup() >= 0.98 * alone
    assert drafter.asked > 0 or until == 0
    managed = machine.controller.drafters[1]
    if says_so:
        assert drafter.in_vain == 0
        assert drafter_status(managed, machine.controller.costs) == DrafterStatus(
            "model", State.PAUSED, "full: it holds no more"
        )
    else:
        assert 0 < drafter.in_vain < 100


@pytest.mark.slow
@pytest.mark.parametrize("takes", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("shape", ["flat", "mixture"])
def test_one_that_is_silent_for_no_reason_is_paused(shape: str, takes: float) -> None:
    machine = lookup_alone()
    drafter = with_a_model(machine, takes=takes)
    managed = machine.controller.drafters[1]
    costs = costs_of(CURVES[shape])
    machine.controller = Controller([managed], costs, N_VOCAB, machine.clock)
    log = machine.run(tokens=8000)
    found = drafter_status(managed, costs)
    assert found.state is State.PAUSED
    assert "proposed nothing" in found.reason or "even if every" in found.reason
    assert drafter.in_vain * max(takes, DRAW) <= 0.01 * 8000 + 10
    assert log.speedup() >= 0.98


def test_a_reply_that_fits_has_the_drafter_again() -> None:
    machine = lookup_alone()
    drafter = with_a_model(machine, until=400, says_so=True)
    machine.run(tokens=600)
    asked, managed = drafter.asked, machine.controller.drafters[1]
    assert managed.unable
    drafter._until = 2000
    machine.run(tokens=50)
    assert drafter.asked > asked
    assert not managed.unable
    assert drafter.in_vain == 0


class TwoStages:
    """A controller over drafters that are asked in the order of their gain."""

    def __init__(self, *priors: float, free: bool = False, takes: float = 0.5) -> None:
        self.machine = Machine(constant(1.0, 3), CURVES["flat"])
        text, clock = self.machine.text, self.machine.clock
        self.history = text.tokens[:5]
        drafters = [ManagedDrafter(self.machine.drafter)] if free else []
        for number, prior in enumerate(priors):
            cost = DraftCost(DRAW * PLAIN_SECONDS, 0.0)
            drafter = FallsSilent(
                text, clock, cost, 0 if number == 0 else 1 << 30, takes, says_so=False
            )
            drafter.name = f"model {number}"
            drafters.append(ManagedDrafter(drafter, cost=cost, prior=prior))
        costs = CostModel(Measured({1: PLAIN_SECONDS, 16: 1.05 * PLAIN_SECONDS}))
        self.controller = Controller(drafters, costs, N_VOCAB, clock)
        self.controller.begin(self.history, SAMPLER)
        for _ in self.controller.read(self.history):
            pass

    def propose(self) -> Draft:
        self.controller.commit(self.history)
        return self.controller.propose(self.history, 8)


def test_the_next_best_is_drawn_and_what_the_silent_one_took_is_told() -> None:
    one = TwoStages(0.95, 0.8)
    draft = one.propose()
    assert draft.drafter == "model 1"
    assert [empty.drafter for empty in draft.empty_drafts] == ["model 0"]
    assert draft.empty_drafts[0].seconds == pytest.approx(0.5 * PLAIN_SECONDS)
    assert one.controller.decision.cause is Cause.PAYS


def test_the_free_offer_comes_after_what_is_drawn() -> None:
    one = TwoStages(0.95, free=True)
    draft = one.propose()
    assert draft.drafter == "free"
    assert [empty.drafter for empty in draft.empty_drafts] == ["model 0"]


def test_where_nobody_else_drafts_the_step_is_plain() -> None:
    one = TwoStages(0.95)
    draft = one.propose()
    assert (draft.tokens, draft.drafter, len(draft.empty_drafts)) == ((), "", 1)
    assert str(one.controller.decision) == "plain, no drafter proposed anything"


def test_a_silent_probe_leaves_a_plain_step_and_costs_the_budget_of_probes() -> None:
    one = TwoStages(0.02, takes=0.5)
    budget, risk = one.controller._probing.budget, one.controller._budget.affordable
    draft = one.propose()
    assert one.controller.decision.cause is Cause.SILENT
    seconds = (1.0 + 0.5) * PLAIN_SECONDS
    spent = 0.5 * PLAIN_SECONDS
    said = tuple(one.machine.text.tokens[5:6])
    one.controller.observe(
        Step(said, "", 0, 0, spent, PLAIN_SECONDS, seconds, 0.0, empty_drafts=draft.empty_drafts)
    )
    assert one.controller._probing.budget == pytest.approx(budget - 0.5 - DRAW + 0.01, abs=1e-2)
    assert one.controller._budget.affordable == risk


def test_asking_in_vain_is_taken_off_the_account_and_held_against_the_drafter() -> None:
    one = TwoStages(0.95, takes=0.5)
    managed = one.controller.drafters[0]
    assert managed.cost is not None
    before, draw = one.controller._budget.affordable, managed.cost.draw_seconds
    draft = one.propose()
    spent, said = 0.5 * PLAIN_SECONDS, tuple(one.machine.text.tokens[5:6])
    one.controller.observe(
        Step(
            said, "", 0, 0, spent, PLAIN_SECONDS, spent + PLAIN_SECONDS, 0.0,
            empty_drafts=draft.empty_drafts,
        )
    )  # fmt: skip
    assert one.controller._budget.affordable == pytest.approx(before - 0.5 + 0.005)
    assert managed.estimates.at_position(0) < 0.95
    assert managed.cost.draw_seconds > draw, "it took longer than a token"
    assert managed.estimates.recalled is None, "no token of it was judged"


def test_silence_at_once_does_not_make_a_drafter_look_cheap() -> None:
    one = TwoStages(0.95, takes=0.0)
    managed = one.controller.drafters[0]
    assert managed.cost is not None
    draw = managed.cost.draw_seconds
    one.propose()
    assert managed.cost.draw_seconds == draw


def test_seconds_in_vain_are_told_of_who_took_them() -> None:
    found = Statistics(0.0)
    step = Step(
        (1, 2), "lookup", 1, 1, 0.3, 0.1, 0.4, 1.0, empty_drafts=(EmptyDraft("model", 0.2),)
    )
    found.add(replace(step, seconds=0.0, drafter="", drafted=0, accepted=0, empty_drafts=()))
    found.add(step)
    lookup, model = found.by_drafter["lookup"], found.by_drafter["model"]
    assert (lookup.steps, model.steps, model.drafted) == (1, 0, 0)
    assert (lookup.draft_seconds, model.draft_seconds) == pytest.approx((0.1, 0.2))


def test_a_drafter_that_fails_when_it_is_asked_whether_it_can_is_dropped() -> None:
    class Fails(PromptLookup):
        def refusal(self, history: Sequence[int]) -> str:
            raise RuntimeError("out of paper")

    managed = ManagedDrafter(Fails())
    assert not managed.can_draft([1])
    assert managed.dropped == "it failed: out of paper"


def test_what_cannot_draft_is_not_promising() -> None:
    cost = DraftCost(DRAW, 0.0)
    drafter = FallsSilent(Text(constant(1.0, 1), 0), Clock(), cost, 3, 0.0, says_so=True)
    managed, costs = ManagedDrafter(drafter, cost=cost), CostModel(Measured({1: 1.0, 16: 1.1}))
    assert managed.can_draft([1])
    assert is_promising(managed, costs)
    assert not managed.can_draft([1, 2, 3])
    assert not is_promising(managed, costs)


N_CTX = 16
FULL = f"full: its context is {N_CTX} tokens"


def model_of(context: "FakeContext") -> DraftModel:
    return DraftModel("model", context, n_vocab=N_TABLE)


def cascade_of(context: "FakeContext") -> Cascade:
    costs = CostModel(Measured({1: 1.0, 16: 2.0}))
    below = Controller([ManagedDrafter(PromptLookup())], costs, N_TABLE)
    return Cascade("cascade", context, below, costs, n_vocab=N_TABLE)


def controlled(context: "FakeContext") -> Controller:
    managed = ManagedDrafter(model_of(context), cost=DraftCost(0.01, 0.001))
    return Controller([managed], CostModel(Measured({1: 1.0, 16: 1.01})), N_TABLE)


WITH_A_CONTEXT: dict[str, Callable[["FakeContext"], Drafter]] = {
    **MAKERS,
    "model": model_of,
    "cascade": cascade_of,
    "vote": lambda context: Vote("vote", [model_of(context), model_of(context)]),
    "controller": controlled,
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", WITH_A_CONTEXT)
def test_a_drafter_says_that_its_context_is_full_and_only_then(
    name: str,
    temperature: float,
    table: Callable[..., "NDArray[np.float32]"],
    fake_context: Callable[..., "FakeContext"],
) -> None:
    drafter = WITH_A_CONTEXT[name](fake_context(table(4, N_TABLE), n_ctx=N_CTX))
    sampler = Sampler(SamplingSettings(temperature, 0, 1.0, 0.0))
    refusals: list[str] = []
    for length in (4, N_CTX - 2, N_CTX - 1, N_CTX, N_CTX + 3, 5):
        history = [0, 1, 1, 0] * 5
        del history[length:]
        drafter.begin(history, sampler)
        refusals.append(drafter.refusal(history))
        assert bool(drafter.propose(history, 4).tokens) == (not refusals[-1]), length
    most = N_CTX - 2 if name.startswith("paths") else N_CTX - 1
    assert refusals == ["", "", FULL if most < N_CTX - 1 else "", FULL, FULL, ""]


def test_a_vote_goes_on_with_those_that_can(
    table: Callable[..., "NDArray[np.float32]"], fake_context: Callable[..., "FakeContext"]
) -> None:
    context = fake_context(table(4, N_TABLE), n_ctx=4)
    one = Vote("vote", [model_of(context), PromptLookup(min_match=1)])
    history = [0, 1, 0, 1, 0]
    one.begin(history, SAMPLER)
    assert (one.refusal(history), one.backlog(history)) == ("", 0)
    assert one.propose(history, 2).tokens == (1, 0)


def test_the_drafters_of_a_step_cost_no_time_to_ask_whether_they_can() -> None:
    """The log of a machine whose drafter never refuses is as it would be without the question."""
    logs: list[Log] = []
    for _ in range(2):
        machine = lookup_alone()
        with_a_model(machine, until=1 << 30, says_so=len(logs) == 1)
        logs.append(machine.run(tokens=500))
    assert logs[0].costs == logs[1].costs
