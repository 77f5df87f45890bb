"""What speculation may lose is bounded, whatever becomes of the drafts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.planning.risk_budget import RiskBudget

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
        assert spent <= 1.005 * tokens + 4.0 + 1e-9
        all_tokens, all_spent = all_tokens + tokens, all_spent + spent
    assert all_spent <= 1.005 * all_tokens + 4.0 + 1e-9


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
