"""Whether drafting is on, parked or off, and why, in words that a user can check."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from decoding.estimation.cost import BUSY, CostModel, DraftCost
from decoding.planning.draft_length import break_even, predicted_speedup
from decoding.planning.managed_drafter import ManagedDrafter

_PARKED_AFTER = 32
"""Proposals in a row not worth sending, after which a free drafter counts as parked."""


class State(StrEnum):
    """State of drafting as a whole, or of one drafter."""

    ON = "on"
    PARKED = "parked"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class DrafterStatus:
    """State of a drafter; the reason is empty while it is on."""

    name: str
    state: State
    reason: str = ""


def drafter_status(member: ManagedDrafter, costs: CostModel) -> DrafterStatus:
    """State of a drafter at the present costs of passes."""
    if member.dropped:
        return DrafterStatus(member.name, State.OFF, member.dropped)
    if member.unable:
        return DrafterStatus(member.name, State.PARKED, member.unable)
    if member.cost is None:
        draw_cost = 0.0
        parked = member.unsent >= _PARKED_AFTER
    else:
        draw_cost = member.cost.draw_seconds / costs.seconds(1)
        acceptance, passes = member.estimates.at_position, member.costs(costs)
        parked = predicted_speedup(acceptance, passes, draw_cost) <= 1.0
    if not parked:
        return DrafterStatus(member.name, State.ON)
    if member.costs(costs).largest == 1:
        reason = f"its passes are longer than the {costs.largest} tokens that were measured here"
    else:
        is_steady = costs.is_steady and (member.cost is None or member.cost.is_steady)
        reason = _reason(member, break_even(member.costs(costs), draw_cost))
        reason += "" if is_steady else f" (costs {BUSY})"
    return DrafterStatus(member.name, State.PARKED, reason)


def is_promising(member: ManagedDrafter, costs: CostModel) -> bool:
    """Whether a costly drafter may well pay, or is untried and could."""
    if member.cost is None or member.dropped or member.unable:
        return False
    if member.estimates.is_untried:
        draw_cost = member.cost.draw_seconds / costs.seconds(1)
        return break_even(member.costs(costs), draw_cost) < 1.0
    return hopeful_speedup(member, member.cost, costs) > 1.0


def hopeful_speedup(member: ManagedDrafter, cost: DraftCost, costs: CostModel) -> float:
    """Predicted speedup of a costly drafter at one standard error above its acceptance."""
    estimates = member.estimates
    hopeful = estimates.shifted(estimates.by_position(0, costs.largest), errors=1.0)
    draw_cost = cost.draw_seconds / costs.seconds(1)
    return predicted_speedup(lambda position: hopeful[position], member.costs(costs), draw_cost)


def overall(standings: Sequence[DrafterStatus]) -> tuple[State, str]:
    """State of drafting as a whole, with the reason for each drafter that is not on."""
    states = [drafter_status.state for drafter_status in standings]
    reasons = [
        f"{drafter_status.name}: {drafter_status.reason}"
        for drafter_status in standings
        if drafter_status.reason
    ]
    for state in (State.ON, State.PARKED):
        if state in states:
            return state, "; ".join(reasons)
    return State.OFF, "; ".join(reasons)


def _reason(member: ManagedDrafter, needed: float) -> str:
    if needed > 1.0:
        return "slower than plain here even if every drafted token were accepted"
    return f"slower than plain: needs acceptance {needed:.2f}, {_known(member, needed)}"


def _known(member: ManagedDrafter, needed: float) -> str:
    """The drafter's acceptance as far as it is known, and where that is known from."""
    estimates = member.estimates
    judged, recalled = estimates.judged, estimates.recalled
    if judged.judged > 0.0:
        share = f"{judged.accepted / judged.judged:.2f}"
        if judged.accepted >= needed * judged.judged:
            return f"has {share} so far and is expected to have less"
        # What was not sent is judged as well, by what the model said then.
        return f"has {share}" if member.cost else f"{share} of its guesses came true"
    if recalled is None:
        silent = estimates.was_silent
        return "had nothing to say" if silent else f"untried, {estimates.prior:.2f} assumed"
    is_trial = estimates.acceptance.is_trial
    return f"a trial expects {recalled:.2f}" if is_trial else f"had {recalled:.2f}"
