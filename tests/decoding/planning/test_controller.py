"""The controller in a simulated machine: close to the best choice, and never slower than plain."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.draft import Draft, KeepOn, PointMassLine
from decoding.estimation.acceptance import TextKindReader
from decoding.estimation.cost import CostModel, DraftCost, Measured
from decoding.events import Cause, Step
from decoding.planning.controller import BASELINE_EVERY, Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.model_draft_planner import Probing
from decoding.planning.pausing import State, overall
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.simulated_text import N_VOCAB, Text, bursts, collapse, constant
from tests.fixtures.simulator import (
    CURVES,
    Clock,
    CostlyDrafter,
    Curve,
    FreeDrafter,
    Log,
    Machine,
    curve,
)

WARM = 500
STEPS = 2500
SEEDS = 2
Process = Callable[[int], NDArray[np.bool_]]

PROCESSES: dict[str, Process] = {
    "0.3": lambda seed: constant(0.3, seed),
    "0.6": lambda seed: constant(0.6, seed),
    "0.8": lambda seed: constant(0.8, seed),
    "0.95": lambda seed: constant(0.95, seed),
    "bursts": lambda seed: bursts(300, seed),
}


MACHINES = list(product(CURVES, PROCESSES, [None, 0.02, 0.1]))


@pytest.mark.parametrize(
    ("shape", "process", "draw_cost"),
    [
        pytest.param(*one, marks=pytest.mark.nightly if place % 4 else pytest.mark.slow)
        for place, one in enumerate(MACHINES)
    ],
)
def test_regret_against_the_best_fixed_length_is_small(
    shape: str, process: str, draw_cost: float | None
) -> None:
    shares: list[float] = []
    for seed in range(SEEDS):
        machine = Machine(PROCESSES[process](seed), CURVES[shape], draw_cost=draw_cost, seed=seed)
        log = machine.run(steps=STEPS)
        shares.append(log.speedup(WARM) / machine.best_fixed(log, WARM, draw_cost or 0.0))
    assert np.mean(shares) >= 0.97


@pytest.mark.parametrize("shape", ["stepped", "linear", "mixture"])
@pytest.mark.parametrize("share", [0.02, 0.2, 0.4])
@pytest.mark.parametrize("draw_cost", [None, 0.1, 0.25])
@pytest.mark.parametrize("tokens", [150, 2000])
def test_where_nothing_pays_it_is_as_fast_as_plain(
    shape: str, share: float, draw_cost: float | None, tokens: int
) -> None:
    for seed in range(SEEDS):
        machine = Machine(constant(share, seed), CURVES[shape], draw_cost=draw_cost, seed=seed)
        assert machine.run(tokens=tokens).speedup() >= 0.98


@pytest.mark.parametrize("shape", CURVES)
@pytest.mark.parametrize("draw_cost", [None, 0.1])
def test_a_drafter_that_turns_bad_costs_little(shape: str, draw_cost: float | None) -> None:
    machine = Machine(collapse(1000, 3), CURVES[shape], draw_cost=draw_cost)
    log = machine.run(tokens=3000)
    turned = next(step for step, start in enumerate(log.starts) if start >= 1000)
    assert log.speedup() >= 0.98
    lost = sum(log.costs[turned:]) - sum(log.tokens[turned:])
    assert lost <= 0.02 * sum(log.tokens[turned:]) + 40


@pytest.mark.parametrize("shape", CURVES)
@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
@pytest.mark.parametrize("steeper", [1.0, 1.5])
def test_load_by_another_process_half_way_through(shape: str, share: float, steeper: float) -> None:
    """All passes take twice the time from a step on; the curve may become steeper as well.

    A steeper curve has to be found out first, which costs up to one hundredth more.
    """
    before = CURVES[shape]
    after: Curve = [0.0, *(1.0 + steeper * (cost - 1.0) for cost in before[1:])]

    def at(step: int) -> tuple[Curve, float]:
        return (before, 1.0) if step < 400 else (after, 2.0)

    log = Machine(constant(share, 7), before).run(steps=1200, at=at)
    assert log.speedup() >= (0.98 if steeper == 1.0 else 0.97)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.97, 0.99])
@pytest.mark.parametrize("draw_cost", [0.15, 0.22])
def test_a_model_that_pays_is_found_within_a_few_short_replies(
    share: float, draw_cost: float
) -> None:
    """What drafting loses if all fails is more than a short reply may lose, so trust is earned."""
    known = curve({1: 1.0, 2: 1.8, 4: 2.6, 8: 4.8, 16: 7.1})
    shares: list[float] = []
    for seed in range(6):
        machine = Machine(
            constant(share, seed), known, draw_cost=draw_cost, read_share=0.3, seed=seed
        )
        machine.replies(steps=600, tokens=128)
        log = machine.replies(steps=600, tokens=128)
        shares.append(log.speedup() / machine.best_fixed(log, 0, draw_cost))
    assert np.mean(shares) >= 0.93


def test_plain_decoding_stays_measured() -> None:
    log = Machine(constant(1.0, 0), CURVES["flat"]).run(steps=1000)
    since = 0
    for drafted in log.drafted:
        since = since + 1 if drafted else 0
        assert since <= BASELINE_EVERY
    assert log.speedup() > 10


def test_a_paused_drafter_is_asked_within_its_budget_and_says_why() -> None:
    machine = Machine(constant(0.5, 1), CURVES["linear"], draw_cost=0.3)
    log = machine.run(tokens=4000)
    assert machine.drafter.asked < 200
    lost = sum(log.costs) - sum(log.tokens)
    assert lost <= 0.01 * sum(log.tokens) + 3
    state, reason = overall(machine.controller.statuses)
    assert state is State.PAUSED
    assert reason.startswith("model: slower than plain")


def test_what_a_costly_drafter_drew_is_sent_whole() -> None:
    machine = Machine(constant(0.9, 2), CURVES["flat"], draw_cost=0.02)
    given: list[int] = []
    propose = machine.drafter.propose

    def noted(history: Sequence[int], limit: int, keep_on=None) -> Draft:
        draft = propose(history, limit, keep_on)
        given.append(len(draft))
        return draft

    machine.drafter.propose = noted
    log = machine.run(steps=300)
    assert [drafted for drafted in log.drafted if drafted] == given


class Faulty(FreeDrafter):
    """Sound for some steps, then not."""

    def __init__(self, text: Text, fault: Callable[[Draft], Draft]) -> None:
        super().__init__(text)
        self._fault = fault

    def propose(self, history, limit, keep_on=None) -> Draft:
        draft = super().propose(history, limit, keep_on)
        return draft if self.asked < 50 else self._fault(draft)


def _raises(draft: Draft) -> Draft:
    raise RuntimeError("out of paper")


def _changed(**fields) -> Callable[[Draft], Draft]:
    def fault(draft: Draft) -> Draft:
        return replace(draft, **{name: make(draft) for name, make in fields.items()})

    return fault


FAULTS = {
    "raises": (_raises, "it failed: out of paper"),
    "past the vocabulary": (
        _changed(form=lambda d: PointMassLine((N_VOCAB, *d.tokens[1:]))),
        "nonsense",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_drafter_is_dropped_and_the_reply_goes_on(name: str) -> None:
    fault, reason = FAULTS[name]
    machine = Machine(constant(0.9, 4), CURVES["flat"])
    faulty = Faulty(machine.text, fault)
    managed = machine.controller.drafters[0]
    managed.drafter = faulty
    log = machine.run(tokens=400)
    assert sum(log.tokens) >= 400
    assert all(count >= 1 for count in log.tokens)
    assert faulty.asked == 50
    assert reason in managed.dropped
    assert overall(machine.controller.statuses) == (State.OFF, f"free: {managed.dropped}")


def test_a_drafter_that_stalls_is_dropped_after_what_it_drew() -> None:
    machine = Machine(constant(0.95, 4), CURVES["flat"], draw_cost=0.02)
    managed = machine.controller.drafters[0]

    class Stalling(CostlyDrafter):
        def propose(self, history, limit, keep_on=None) -> Draft:
            if self.asked == 20:
                machine.clock.now += 30.0
            return super().propose(history, limit, keep_on)

    machine.drafter.__class__ = Stalling
    log = machine.run(tokens=600)
    assert sum(log.tokens) >= 600
    assert "stalled" in managed.dropped
    assert machine.drafter.asked == 21


def test_the_better_of_two_drafters_drafts() -> None:
    text = Text(constant(0.9, 6), 0)
    good, bad = FreeDrafter(text), FreeDrafter(Text(constant(0.1, 8), 0))
    good.name, bad.name = "good", "bad"
    costs = CostModel(Measured({1: 0.03, 16: 0.035}))
    controller = Controller([ManagedDrafter(bad), ManagedDrafter(good)], costs, N_VOCAB)
    history = text.tokens[:5]
    controller.begin(history, Sampler(SamplingSettings(temperature=0.0)))
    sent: list[str] = []
    for _ in range(200):
        controller.commit(history)
        draft = controller.propose(history, 8)
        accepted = text.run(len(history), len(draft)) if draft.drafter == "good" else 0
        emitted = tuple(text.tokens[len(history) : len(history) + accepted + 1])
        history += emitted
        sent.append(draft.drafter)
        controller.observe(Step(emitted, draft.drafter, len(draft), accepted, 0.0, 0.03, 0.03, 0.0))
    assert sent[-100:].count("good") > 90
    assert controller.name == "bad,good"


def test_costs_of_a_drafter_follow_the_machine() -> None:
    machine = Machine(constant(0.9, 2), CURVES["flat"], draw_cost=0.05)
    assert isinstance(machine.drafter, CostlyDrafter)
    machine.drafter.slower = 2.0
    machine.run(steps=300)
    cost = machine.controller.drafters[0].cost
    assert isinstance(cost, DraftCost)
    assert cost.draw_seconds == pytest.approx(2 * 0.05 * 0.03, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("draw_cost", "least"), [(None, 1.05), (0.1, 1.02)])
@pytest.mark.parametrize("shape", ["stepped", "mixture"])
def test_a_drafter_is_judged_by_what_it_did_in_text_of_that_kind(
    shape: str, draw_cost: float | None, least: float
) -> None:
    """Short stretches of two kinds of text, in one of which the drafter is nearly always right."""
    gained: list[float] = []
    for seed in range(3):
        log = _in_two_kinds(shape, draw_cost, seed, TextKindReader(_quoted_or_not))
        blind = _in_two_kinds(shape, draw_cost, seed, None)
        assert log.speedup() >= 0.98
        gained.append(log.speedup(WARM) / blind.speedup(WARM))
    assert np.mean(gained) >= least


def _in_two_kinds(
    shape: str, draw_cost: float | None, seed: int, reader: TextKindReader | None
) -> Log:
    is_quoted = np.arange(40_000) // 25 % 2 == 1
    right = np.random.default_rng(seed).random(len(is_quoted)) < np.where(is_quoted, 0.9, 0.2)
    machine = Machine(right, CURVES[shape], draw_cost=draw_cost, seed=seed, reader=reader)
    half = N_VOCAB // 2
    tokens = machine.text.tokens
    machine.text.tokens = [
        token % half + half * quoted for token, quoted in zip(tokens, is_quoted, strict=True)
    ]
    return machine.run(steps=STEPS)


def _quoted_or_not(token: int) -> bytes:
    """A line for each token."""
    return b"\n> it" if token >= N_VOCAB // 2 else b"\nit"


def test_probes_go_to_the_drafter_that_may_be_the_best() -> None:
    """One was seen to be bad, the other is unknown: the budget is for the unknown one."""
    costs = CostModel(Measured({n: CURVES["linear"][n] for n in range(1, 17)}))
    bad, unknown = (
        ManagedDrafter(
            CostlyDrafter(Text(constant(0.5, 1), 1), Clock(), DraftCost(0.1, 0.01)), None, cost
        )
        for cost in (DraftCost(0.1, 0.01), DraftCost(0.1, 0.01))
    )
    for managed in (bad, unknown):
        managed.begin(0.0)
    for _ in range(50):
        bad.estimates.acceptance.add("greedy:drawn", False)
    probe = Probing(costs).next([bad, unknown], [1, 2], costs, 8, 1.0)
    assert probe is not None
    assert probe.managed is unknown
    assert probe.limit >= 1


def test_what_it_chose_is_said_with_the_reason() -> None:
    reader = TextKindReader(lambda token: b"x")
    pays = Machine(constant(0.95, 1), CURVES["flat"], reader=reader)
    pays.run(steps=40)
    choice = pays.controller.decision
    assert (choice.cause, choice.drafter) == (Cause.PAYS, "free")
    assert choice.drafted > 0 < choice.gain
    assert str(choice).startswith(f"free drafts {choice.drafted} (prose), +")
    pays_not = Machine(constant(0.02, 1), CURVES["linear"])
    pays_not.run(steps=40)
    assert str(pays_not.controller.decision) == "plain, no draft is expected to pay"


def test_a_probe_is_called_one() -> None:
    machine = Machine(constant(0.5, 1), CURVES["linear"], draw_cost=0.3)
    causes: list[Cause] = []
    propose = machine.controller.propose

    def noted(history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        draft = propose(history, limit, keep_on)
        causes.append(machine.controller.decision.cause)
        return draft

    machine.controller.propose = noted
    log = machine.run(steps=600)
    asked = [cause in (Cause.ASKED_AGAIN, Cause.PAYS) for cause in causes]
    assert Cause.ASKED_AGAIN in causes
    assert asked == [drafted > 0 for drafted in log.drafted[-len(asked) :]]


@pytest.mark.parametrize(
    ("prior", "cause"), [(0.8, Cause.TOO_RISKY), (0.3, Cause.PAYS_NOT)], ids=["risky", "pays not"]
)
def test_what_would_pay_and_cannot_be_afforded_is_told_from_what_would_not(
    prior: float, cause: Cause
) -> None:
    """The steep curve asks for more than a drafter that nobody knows may lose, and for probes."""
    costs = CostModel(Measured({1: 1.0, 2: 3.0, 16: 3.2}))
    text = Text(constant(prior, 1), 1)
    cost = DraftCost(0.05, 0.05)
    controller = Controller(
        [ManagedDrafter(CostlyDrafter(text, Clock(), cost), None, cost, prior=prior)],
        costs,
        N_VOCAB,
    )
    history = [1, 2, 3]
    controller.begin(history, Sampler(SamplingSettings()))
    assert len(controller.propose(history, 15)) == 0
    assert controller.decision.cause is cause


def test_what_is_learned_late_is_as_if_it_had_been_learned_at_once() -> None:
    """Steps at which nobody is asked wait; whoever looks at the costs or standings sees them."""
    found: list[tuple[float, float, list[int]]] = []
    for looks in (False, True):
        machine = Machine(constant(0.05, 1), CURVES["linear"])
        controller = machine.controller
        commit, waiting = controller.commit, [0]

        def looking(
            history: Sequence[int], of=controller, commit=commit, seen=waiting, looks=looks
        ):
            seen.append(len(of._unlearned))
            assert not looks or of.statuses
            commit(history)

        controller.commit = looking
        log = machine.run(steps=300)
        assert (max(waiting) > 1) is not looks
        found.append((controller.costs.seconds(1), controller.rate, log.drafted))
    assert found[0] == found[1]


def test_without_anybody_to_ask_no_more_than_a_few_steps_wait() -> None:
    machine = Machine(constant(0.5, 1), CURVES["flat"])
    machine.controller.drafters[0].drop("it failed")
    machine.run(steps=100)
    assert 0 < len(machine.controller._unlearned) <= 16
    machine.run(steps=1)
    assert len(machine.controller._unlearned) <= 1, "a reply begins with all that was learned"
