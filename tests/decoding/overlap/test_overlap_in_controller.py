"""What the controller learns and charges where a drafter drafts ahead at some of the steps."""

from collections.abc import Callable, Sequence

import pytest

from decoding.draft import Draft, KeepOn
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.cost import DraftCost
from decoding.overlap.overlap_cost import AtOnce, OverlapCost
from decoding.planning.controller import BASELINE_EVERY
from decoding.planning.risk_budget import RiskBudget
from tests.fixtures.overlapped_machine import NAME, OverlappedMachine, Pair
from tests.fixtures.simulator import PLAIN_SECONDS, READ_SHARE, Curve, curve

OWN_DEVICE = curve({1: 1.0, 16: 1.15})
PAIR = Pair(OWN_DEVICE, 0.7, 0.3)
"""A drafter that is slow enough to be waited for."""

IN_TURN, AHEAD, PLAIN = "in turn", "ahead", "plain"
STEPS = 300
Act = Callable[[int], str]


def decoded(
    pair: Pair,
    act: Act,
    slower: float = 1.0,
    steps: int = STEPS,
    believed: AtOnce | None = None,
) -> tuple[OverlappedMachine, list[str]]:
    """A reply whose steps are made in the ways that act says, and the drafter of each.

    slower: factor by which the drafter is slower than was measured. believed: as of the machine.
    """
    machine = OverlappedMachine(pair, overlaps=True, noise=0.0, believed=believed)
    draw, controller, drafters = pair.draw * PLAIN_SECONDS * slower, machine.controller, list[str]()
    machine.context.cost = DraftCost(draw, draw * READ_SHARE)
    cost, propose = machine.overlap.cost, controller.propose
    assert isinstance(cost, OverlapCost)

    def at(step: int) -> tuple[Curve, float]:
        chosen = act(step)
        cost.hidden = 0.95 if chosen == AHEAD else -0.5
        controller._since_plain = BASELINE_EVERY if chosen == PLAIN else 0
        controller._budget._balance = 100.0
        return pair.passes, 1.0

    def noted(history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        draft = propose(history, limit, keep_on)
        drafters.append(draft.drafter)
        return draft

    controller.propose = noted
    machine.run(steps=steps, at=at)
    return machine, drafters


def test_waiting_for_a_round_is_no_part_of_what_drafting_in_turn_costs() -> None:
    machine, drafters = decoded(PAIR, lambda step: (AHEAD, IN_TURN)[step % 2])
    assert drafters.count(NAME) > STEPS // 3
    assert drafters.count("model") > STEPS // 3
    lines = machine.overlap.in_turn
    assert lines is not None
    assert lines.cost is not None
    assert lines.cost.draw_seconds == pytest.approx(0.3 * PLAIN_SECONDS, rel=0.01)


def test_waiting_for_a_round_that_made_no_draft_is_its_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The drafter's passes take as long as the target's while both run: all is waited for."""
    slow = Pair(OWN_DEVICE, 0.7, 0.3, at_once=AtOnce(1.0, 5.0))
    waited: list[float] = []
    observe = OverlapCost.observe

    def noted(cost: OverlapCost, drafted: int, backlog: int, seconds: float) -> None:
        waited.append(seconds / cost._in_turn.seconds(drafted, backlog))
        observe(cost, drafted, backlog, seconds)

    monkeypatch.setattr(OverlapCost, "observe", noted)
    machine, _ = decoded(slow, lambda _: AHEAD)
    assert len(waited) > STEPS - 10
    assert sum(waited) > 1.1 * len(waited)
    lines = machine.overlap.in_turn
    assert lines is not None
    assert lines.cost is not None
    assert lines.cost.draw_seconds == pytest.approx(0.3 * PLAIN_SECONDS, rel=0.01)


@pytest.mark.parametrize("between", [IN_TURN, PLAIN])
def test_the_budget_is_charged_what_the_steps_took(
    monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    charged: list[float] = []
    monkeypatch.setattr(RiskBudget, "settle", lambda _, tokens, cost: charged.append(cost))
    machine, _ = decoded(PAIR, lambda step: (AHEAD, between)[step % 2])
    assert len(charged) == STEPS
    assert sum(charged) * PLAIN_SECONDS == pytest.approx(machine.clock.now, rel=0.01)


def test_the_budget_is_charged_what_a_pass_took_before_its_slowdown_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    charged: list[float] = []
    monkeypatch.setattr(RiskBudget, "settle", lambda _, tokens, cost: charged.append(cost))
    slowed = Pair(OWN_DEVICE, 0.7, 0.1, at_once=AtOnce(1.5, 1.0))
    machine, drafters = decoded(slowed, lambda _: AHEAD, steps=10, believed=AtOnce(1.0, 1.0))
    assert drafters.count(NAME) > 2
    assert sum(charged) * PLAIN_SECONDS == pytest.approx(machine.clock.now, rel=0.01)


@pytest.mark.parametrize("slower", [0.6, 2.0])
def test_a_drafter_of_another_speed_is_known_from_the_drafts_of_which_none_was_made(
    slower: float,
) -> None:
    machine, drafters = decoded(PAIR, lambda _: AHEAD, slower)
    assert "model" not in drafters[5:]
    lines = machine.overlap.in_turn
    assert lines is not None
    assert lines.cost is not None
    assert lines.cost.draw_seconds == pytest.approx(slower * 0.3 * PLAIN_SECONDS, rel=0.03)


def test_the_bias_that_both_share_fades_once_at_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    faded: list[int] = []
    decay = Acceptance.decay_bias
    monkeypatch.setattr(Acceptance, "decay_bias", lambda one: (faded.append(1), decay(one)))
    _, drafters = decoded(PAIR, lambda step: (AHEAD, IN_TURN, PLAIN)[step % 3])
    assert {NAME, "model", ""} <= set(drafters)
    assert len(faded) == drafters.count(""), "a draft updates it, and a step without one fades it"
