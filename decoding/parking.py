"""Whether drafting is on, parked or off, and why: in words a user can check."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from decoding.cost import BUSY, CostModel, DraftCost
from decoding.length import break_even, predicted_speedup
from decoding.member import Member

_PARKED_AFTER = 32
"""Proposals in a row not worth sending, after which a free drafter counts as parked."""


class State(StrEnum):
    """Of drafting, or of one drafter."""

    ON = "on"
    PARKED = "parked"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a drafter does now; the reason is empty while it is on."""

    name: str
    state: State
    reason: str = ""


def standing(member: Member, costs: CostModel) -> Standing:
    """How a drafter stands at what passes cost now."""
    if member.dropped:
        return Standing(member.name, State.OFF, member.dropped)
    if member.unable:
        return Standing(member.name, State.PARKED, member.unable)
    if member.cost is None:
        draw_cost = 0.0
        parked = member.unsent >= _PARKED_AFTER
    else:
        draw_cost = member.cost.draw_seconds / costs.seconds(1)
        parked = predicted_speedup(member.at_position, member.costs(costs), draw_cost) <= 1.0
    if not parked:
        return Standing(member.name, State.ON)
    if member.costs(costs).largest == 1:
        reason = f"its passes are longer than the {costs.largest} tokens that were measured here"
    else:
        is_steady = costs.is_steady and (member.cost is None or member.cost.is_steady)
        reason = _reason(member, break_even(member.costs(costs), draw_cost))
        reason += "" if is_steady else f" (costs {BUSY})"
    return Standing(member.name, State.PARKED, reason)


def is_promising(member: Member, costs: CostModel) -> bool:
    """Whether a drafter that takes time may well pay, or could and is untried."""
    if member.cost is None or member.dropped or member.unable:
        return False
    if member.is_untried:
        draw_cost = member.cost.draw_seconds / costs.seconds(1)
        return break_even(member.costs(costs), draw_cost) < 1.0
    return hopeful_speedup(member, member.cost, costs) > 1.0


def hopeful_speedup(member: Member, cost: DraftCost, costs: CostModel) -> float:
    """What a drafter that takes time may reach: at one standard error more than was seen of it."""
    hopeful = member.shifted(member.by_position(0, costs.largest), errors=1.0)
    draw_cost = cost.draw_seconds / costs.seconds(1)
    return predicted_speedup(lambda place: hopeful[place], member.costs(costs), draw_cost)


def overall(standings: Sequence[Standing]) -> tuple[State, str]:
    """The state of drafting as a whole, and the reasons of all that is not on."""
    states = [one.state for one in standings]
    reasons = [f"{one.name}: {one.reason}" for one in standings if one.reason]
    for state in (State.ON, State.PARKED):
        if state in states:
            return state, "; ".join(reasons)
    return State.OFF, "; ".join(reasons)


def _reason(member: Member, needed: float) -> str:
    if needed > 1.0:
        return "slower than plain here even if every drafted token were accepted"
    return f"slower than plain: needs acceptance {needed:.2f}, {_known(member, needed)}"


def _known(member: Member, needed: float) -> str:
    """What is known of a drafter's acceptance, and how."""
    found, recalled = member.judged, member.recalled
    if found.judged > 0.0:
        share = f"{found.accepted / found.judged:.2f}"
        if found.accepted >= needed * found.judged:
            return f"has {share} so far and is expected to have less"
        # What was not sent is judged as well, by what the model said then.
        return f"has {share}" if member.cost else f"{share} of its guesses came true"
    if recalled is None:
        silent = member.was_silent
        return "had nothing to say" if silent else f"untried, {member.prior:.2f} assumed"
    return (
        f"a trial expects {recalled:.2f}" if member.acceptance.is_trial else f"had {recalled:.2f}"
    )
