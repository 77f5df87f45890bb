"""What speculation may lose is bounded, whatever becomes of the drafts."""

import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.estimation.acceptance import AcceptanceEstimates
from decoding.estimation.cost import CostModel, Measured
from decoding.planning.controller import Controller
from decoding.planning.draft_length import Option
from decoding.planning.kept_width import KeptWidth
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.risk_budget import RiskBudget
from tests.fixtures.simulated_text import N_VOCAB, Text, constant
from tests.fixtures.simulator import H100, H200, FreeDrafter, Log, Machine, Recorded, costs_of

common = settings(max_examples=300)
drafts = st.lists(st.tuples(st.floats(0.0, 4.0), st.integers(0, 8)), max_size=300)


def replied(budget: RiskBudget, steps: list[tuple[float, int]]) -> tuple[int, float]:
    """Tokens and cost of a reply whose drafts, of some cost and luck, go in if affordable."""
    budget.begin()
    tokens, spent = 0, 0.0
    for extra, accepted in steps:
        affordable = extra <= budget.affordable
        cost = 1.0 + (extra if affordable else 0.0)
        emitted = 1 + (accepted if affordable else 0)
        budget.settle(emitted, cost)
        tokens += emitted
        spent += cost
    return tokens, spent


@common
@given(drafts)
def test_a_reply_never_loses_more_than_the_allowance(steps: list[tuple[float, int]]) -> None:
    tokens, spent = replied(RiskBudget(), steps)
    assert spent <= 1.005 * tokens + 1.0 + 1e-9


@common
@given(drafts, drafts)
def test_what_one_reply_saved_pays_little_of_the_next(
    first: list[tuple[float, int]], second: list[tuple[float, int]]
) -> None:
    budget = RiskBudget()
    for steps in (first, second):
        tokens, spent = replied(budget, steps)
        assert spent <= 1.005 * tokens + 1.0 + 1e-9


@pytest.mark.slow
@common
@given(st.lists(st.lists(st.tuples(st.floats(0.0, 8.0), st.integers(0, 3), st.booleans()))))
def test_trust_and_shown_drafters_lose_three_plain_steps_more_at_most(
    replies: list[list[tuple[float, int, bool]]],
) -> None:
    """Of one reply, and of all replies together: whoever drafts, and whatever held before."""
    budget = RiskBudget()
    all_tokens, all_spent = 0, 0.0
    for reply in replies:
        budget.begin()
        tokens, spent = 0, 0.0
        for extra, accepted, has_shown in reply:
            allowed = extra <= (budget.affordable_if_proven if has_shown else budget.affordable)
            if allowed:
                budget.admit(extra)
            else:
                budget.record_refusal(would_be_accepted=accepted > 0)
            emitted = 1 + accepted * allowed
            budget.settle(emitted, 1.0 + extra * allowed)
            tokens, spent = tokens + emitted, spent + 1.0 + extra * allowed
        assert spent <= 1.005 * tokens + 4.5 + 1e-9
        all_tokens, all_spent = all_tokens + tokens, all_spent + spent
    assert all_spent <= 1.005 * all_tokens + 4.5 + 1e-9


def test_refusing_what_would_have_held_lets_one_in() -> None:
    budget = RiskBudget()
    budget.settle(1, 2.5)
    assert budget.affordable < 0.0
    for _ in range(8):
        budget.record_refusal(would_be_accepted=True)
    allowed = budget.affordable
    assert allowed > 1.0
    budget.admit(allowed)
    assert budget.affordable < allowed - 1.0


def test_refusing_what_would_have_failed_lets_nothing_in() -> None:
    budget = RiskBudget()
    budget.settle(1, 2.5)
    before = budget.affordable
    for held in (True, False) * 20:
        budget.record_refusal(would_be_accepted=held)
    assert budget.affordable <= before + 0.25


REPLY = 160
DRAW = {"135M": 0.5, "8B": 0.12, "32B": 0.12}
"""What the 135M drafter takes for a token, in plain steps of each body."""


def replies(
    body: Recorded, right: float, seed: int, draw: float | None, count: int = 6
) -> tuple[Machine, Log, list[float]]:
    """Replies under the controller, and the speedup of each over plain decoding.

    After its prompt plain decoding begins with a change of width too.
    """
    text = constant(right, seed)
    machine = Machine(text, body.passes, draw_cost=draw, seed=seed, changes=body.changes)
    log, gained = Log(), list[float]()
    for _ in range(count):
        first = len(log.costs)
        machine.run(tokens=REPLY, log=log)
        plain = sum(log.tokens[first:]) + body.changes[1]
        gained.append(plain / sum(log.costs[first:]))
    return machine, log, gained


@pytest.mark.slow
@pytest.mark.parametrize("right", [0.9, 0.7, 0.5, 0.05])
@pytest.mark.parametrize("is_free", [True, False])
@pytest.mark.parametrize("name", H100)
def test_never_slower_and_near_the_best_width(name: str, is_free: bool, right: float) -> None:
    """First replies included; near the best width once the first ones have taught."""
    check(H100[name], right, None if is_free else DRAW[name], seeds=8)


@pytest.mark.parametrize(("name", "right", "draw"), [("8B", 0.9, None), ("32B", 0.7, 0.12)])
def test_it_is_so_in_short(name: str, right: float, draw: float | None) -> None:
    check(H100[name], right, draw, seeds=2)


def check(body: Recorded, right: float, draw: float | None, seeds: int) -> None:
    runs = [replies(body, right, seed, draw) for seed in range(seeds)]
    for of_reply in zip(*(gained for *_, gained in runs), strict=True):
        assert statistics.fmean(of_reply) >= 0.975
    assert statistics.fmean(gain for *_, gained in runs for gain in gained) >= 0.985
    best = max(
        statistics.fmean(one.of_width(width, log, draw or 0.0) for one, log, _ in runs)
        for width in body.changes
    )
    last = statistics.fmean(gain for *_, gained in runs for gain in gained[3:])
    if right >= 0.7 and body is not H100["135M"]:  # there a change costs four plain steps
        assert last >= 0.9 * best


def test_counting_steady_passes_alone_is_slower_than_plain() -> None:
    """The wrong variant, which the controller was: each draft as long as seems best."""
    body, right = H100["8B"], constant(0.3, 1)

    def gain(*, is_known: bool) -> float:
        machine = Machine(right, body.passes, seed=1, changes=body.changes if is_known else None)
        machine.changes = dict.fromkeys(range(1, 65), body.changes[1])
        log = machine.replies(1_500, REPLY)
        return sum(log.tokens) / sum(log.costs)

    assert gain(is_known=False) < 0.9
    assert gain(is_known=True) > 0.97


@pytest.mark.parametrize(("right", "seed"), [(0.7, 0), (0.9, 4)])
def test_no_wide_passes_are_made_with_nothing_in_them(right: float, seed: int) -> None:
    """A model beside a free drafter that is mostly wrong: 13 plain steps were lost in a reply.

    It had proven that a draft of 1 pays, and what that may lose was risked on passes 8 wide.
    """
    body = H100["8B"]
    machine = Machine(
        constant(right, seed), body.passes, draw_cost=0.12, seed=seed, changes=body.changes
    )
    wrong = ManagedDrafter(FreeDrafter(Text(constant(0.1, seed), seed)))
    costs, drafters = costs_of(body.passes, body.changes), machine.controller.drafters
    machine.controller = Controller([wrong, *drafters], costs, N_VOCAB, machine.clock)
    for _ in range(6):
        log = machine.run(tokens=REPLY)
        saved = np.cumsum(np.array(log.tokens) - np.array(log.costs)) + body.changes[1]
        assert saved.min() > -9.0


def test_drafts_become_longer_where_all_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What longer ones did in the reply before says less with each; else passes stay narrow."""
    body = replace(H100["32B"], changes=dict.fromkeys(H100["32B"].changes, 0.2))

    def gain(seed: int) -> float:
        places = np.arange(2_000)
        right = np.random.default_rng(seed).random(len(places)) < np.where(places < 170, 0.85, 1.0)
        machine = Machine(right, body.passes, draw_cost=0.14, seed=seed, changes=body.changes)
        machine.run(tokens=REPLY)
        return machine.run(tokens=REPLY).speedup()

    known = statistics.fmean(map(gain, range(4)))
    monkeypatch.setattr(AcceptanceEstimates, "fade_from", lambda *_: None)
    assert known > 1.1 * statistics.fmean(map(gain, range(4)))


@pytest.mark.parametrize("name", ["8B", "32B"])
def test_a_draft_that_fails_leaves_a_narrow_one_to_try(name: str) -> None:
    """A reply that begins with two tokens that a good drafter has wrong: all of it was plain."""
    body, right = H200[name], constant(0.97, 1)
    right[:27], right[27:29] = True, False
    machine = Machine(
        right,
        body.passes,
        draw_cost=H200["135M"].plain / body.plain,
        prior=0.97,
        changes=body.changes,
    )
    machine.run(tokens=22)
    log = machine.run(tokens=160)
    assert log.tokens[:2] == [1, 1]
    assert all(log.drafted[:12])


def certain(*tokens: float) -> list[Option]:
    """Drafts of each length that cost nothing, with the tokens expected of them."""
    return [(count, more, 0.0) for count, more in enumerate(tokens)]


def test_a_width_is_left_once_another_has_missed_what_the_change_costs() -> None:
    costs = CostModel(Measured({1: 1.0, 4: 1.2, 8: 1.5}, changes={1: 1.0, 4: 1.0, 8: 1.0}))
    width = KeptWidth(costs)
    assert width.choose([certain(0.0)], 1.0, 9.0) == 1
    assert width.ran(1) == 0.0, "after a prompt any width is a change"
    assert [width.choose([certain(0.0, 0.9)], 1.0, 9.0) for _ in range(3)] == [1, 1, 4]
    assert width.ran(4) == 1.0
    assert width.choose([certain(0.0, 0.9)], 1.0, 9.0) == 4
    assert width.ran(4) == 0.0
    assert width.choose([certain(0.0, 0.9)], 1.0, 0.5) == 1, "what may not be lost is not risked"
    assert width.is_refused


def test_what_a_drafter_has_proven_at_one_width_is_not_risked_at_another() -> None:
    width = KeptWidth(
        CostModel(Measured({1: 1.0, 2: 1.02, 8: 1.5}, changes={1: 0.0, 2: 0.0, 8: 0.0}))
    )
    hoped, sure = certain(0.0, 0.9, 1.7, 2.4), certain(0.0, 0.4, 0.45, 0.49)
    assert width.choose([hoped], 1.0, 9.0) == 8
    assert width.choose([hoped], 1.0, 0.1, [sure], 9.0) == 2
    assert width.is_refused
    assert width.choose([hoped], 1.0, 0.1, [certain(0.0, 0.6)], 9.0) == 8


def test_a_free_draft_of_one_step_does_not_choose_the_width_of_all() -> None:
    """The change from a wide pass back to what a drafter model pays in costs more than it gains."""
    costs = CostModel(Measured({1: 1.0, 4: 1.2, 16: 2.0}, changes={1: 2.0, 4: 2.0, 16: 2.0}))
    model, free = certain(0.0, 0.7, 1.1, 1.4), certain(*range(6))
    assert KeptWidth(costs).choose([model], 1.0, 9.0, passing=free) == 4
    assert KeptWidth(costs).choose([], 1.0, 9.0, passing=free) == 16


def test_a_rate_that_no_width_reaches_any_more_does_not_make_passes_narrow() -> None:
    """The recent rate is of an earlier reply, where passes stayed 2 wide on an H200."""
    model = [(n, sum(0.95**k for k in range(1, n + 1)), 0.13 * n) for n in range(8)]
    costs = CostModel(Measured({1: 1.0, 2: 1.02, 8: 1.5}, changes={1: 2.0, 2: 3.0, 8: 2.0}))
    for rate in (1.0, 2.5, 5.0):
        assert KeptWidth(costs).choose([model], rate, 9.0) == 8
    assert KeptWidth(costs).choose([model], 5.0, 2.3) == 2, "the best that is affordable"


def test_a_pass_that_could_not_be_filled_up_counts_as_the_next_width() -> None:
    """At the end of a context, where a step may follow all the same."""
    width = KeptWidth(CostModel(Measured({1: 1.0, 4: 1.2}, changes={1: 1.0, 4: 1.0})))
    width.ran(1)
    assert width.ran(3) == 1.0
    assert width.rows == 4
    assert width.choose([certain(0.0, 0.9)], 1.0, 9.0) == 4


def test_no_step_between_others_tells_what_a_width_costs() -> None:
    costs = CostModel(Measured({1: 1.0, 4: 1.2}, changes={1: 1.0, 4: 1.0}))
    for n, seconds in ((1, 2.0), (1, 2.0), (4, 2.0), (4, 2.0), (1, 2.0), (4, 2.0)):
        costs.observe(n, seconds)
    assert (costs.seconds(1), costs.seconds(4)) == (1.0, 1.2)
    for _ in range(40):
        costs.observe(4, 1.5)
    assert costs.seconds(4) == pytest.approx(1.5, rel=0.05)
