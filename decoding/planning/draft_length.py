"""How long a draft should be: expected tokens against the seconds they cost.

The ratio of tokens to time is maximised as in Dinkelbach 1967, "On nonlinear fractional
programming": a draft is worth its expected tokens less what its time would have brought otherwise.
Costs are in units of a plain step, rates in tokens per unit; plain decoding has rate 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from decoding.estimation.cost import DraftCosts


@dataclass(frozen=True, slots=True)
class Plan:
    """A draft length and what it is expected to gain, in tokens, over drafting nothing."""

    length: int
    gain: float


NOTHING = Plan(0, 0.0)

Option = tuple[int, float, float]
"""Drafted tokens, how many of them are expected to be accepted, and what they cost."""


def best_length(
    acceptance: Sequence[float],
    costs: DraftCosts,
    *,
    rate: float,
    affordable: float,
    draft_cost: float = 0.0,
    start_cost: float = 0.0,
    drafted: int = 0,
) -> Plan:
    """The number of further tokens to draft with the highest gain; all lengths are compared.

    acceptance: of each further token, given that all before it are accepted.
    affordable: the most that may be lost if every drafted token is rejected.
    draft_cost, start_cost: of drafting one token, and of beginning to.
    drafted: tokens drafted already; acceptance[0] must then hold their joint acceptance too.

    The curve is stepped, so that a longer draft may pay where a shorter one does not. A rate that
    better times left behind and no length reaches now is taken down to the best one that does.
    """
    found = options(acceptance, costs, draft_cost, start_cost, drafted)
    if drafted == 0:
        return best_affordable(found, rate, affordable)
    return best_of([option for option in found if option[2] <= affordable], rate)


def options(
    acceptance: Sequence[float],
    costs: DraftCosts,
    draft_cost: float = 0.0,
    start_cost: float = 0.0,
    drafted: int = 0,
) -> list[Option]:
    """All lengths that best_length compares, ascending."""
    found: list[Option] = []
    expected, together = 0.0, 1.0
    spent = costs.of_draft(drafted)
    longest = costs.largest - 1 - drafted
    for count, accepted in enumerate(acceptance[:longest], start=1):
        together *= accepted
        expected += together
        cost = costs.of_draft(drafted + count) - spent + count * draft_cost + start_cost
        found.append((count, expected, cost))
    return found


def best_affordable(found: Sequence[Option], rate: float, affordable: float) -> Plan:
    """Of the options that cost no more than can be afforded the best, at the rate they reach."""
    allowed = [option for option in found if option[2] <= affordable]
    return best_of(allowed, reachable(allowed, rate))


def reachable(found: Sequence[Option], rate: float) -> float:
    """A rate, taken down to the best that an option reaches; never below plain decoding's."""
    if not found:
        return 1.0
    return min(rate, max(1.0, *((1.0 + more) / (1.0 + cost) for _, more, cost in found)))


def best_of(found: Sequence[Option], rate: float) -> Plan:
    """The option that gains most, the first of equals; NOTHING where none gains."""
    best = NOTHING
    for count, more, cost in found:
        gain = more - rate * cost
        if gain > best.gain:
            best = Plan(count, gain)
    return best


def best_tail(
    acceptance: Sequence[float], drawn: int, costs: DraftCosts, *, rate: float, affordable: float
) -> int:
    """How many tokens to keep after the first drawn ones, which cannot be cut, of a draft.

    acceptance: of each token of the draft; affordable: as in best_length, beyond those drawn.
    """
    together, further = prod(acceptance[:drawn]), list(acceptance[drawn:])
    further[:1] = [together * one for one in further[:1]]
    return best_length(further, costs, rate=rate, affordable=affordable, drafted=drawn).length


def predicted_speedup(
    acceptance: Callable[[int], float],
    costs: DraftCosts,
    draft_cost: float = 0.0,
    limit: int = 1 << 30,
) -> float:
    """Tokens per unit of time at the best fixed length, 1 to limit; acceptance by position."""
    best = 0.0
    expected, together = 1.0, 1.0
    for count in range(1, min(limit + 1, costs.largest)):
        together *= acceptance(count - 1)
        expected += together
        best = max(best, expected / (1.0 + costs.of_draft(count) + count * draft_cost))
    return best


def break_even(costs: DraftCosts, draft_cost: float = 0.0) -> float:
    """The least acceptance, alike at every position, at which some length is no slower than plain.

    Leviathan et al. 2023 (arXiv 2211.17192), section 3.3, with measured verification costs. Above 1
    where even accepting every token would not pay.
    """
    if predicted_speedup(lambda _: 1.0, costs, draft_cost) < 1.0:
        return float("inf")
    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        if predicted_speedup(lambda _, value=middle: value, costs, draft_cost) < 1.0:
            low = middle
        else:
            high = middle
    return high
