"""The best length of a draft: expected tokens against the time they cost.

The ratio of tokens to time is maximised as in Dinkelbach 1967, "On nonlinear fractional
programming": a draft is worth its expected tokens less those that its time would yield otherwise.
Costs are in units of a plain step, rates in tokens per unit; plain decoding has rate 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from decoding.estimation.cost import DraftCosts


@dataclass(frozen=True, slots=True)
class LengthPlan:
    """A draft length and its expected gain in tokens over plain decoding."""

    length: int
    gain: float


NOTHING = LengthPlan(0, 0.0)

Option = tuple[int, float, float]
"""Number of drafted tokens, expected number of accepted ones, and cost."""


def best_length(
    acceptance: Sequence[float],
    costs: DraftCosts,
    *,
    rate: float,
    affordable: float,
    draft_cost: float = 0.0,
    start_cost: float = 0.0,
    drafted: int = 0,
) -> LengthPlan:
    """The number of further tokens to draft with the highest gain; all lengths are compared.

    acceptance: of each further token, given that all before it are accepted.
    affordable: the most that may be lost if every drafted token is rejected.
    draft_cost, start_cost: cost of drafting a token, and of starting to draft.
    drafted: tokens drafted already; acceptance[0] must then include their joint acceptance.

    The cost curve is stepped, so a longer draft may pay where a shorter one does not. A rate that
    no length reaches any more is lowered to the highest that one does.
    """
    lengths = options(acceptance, costs, draft_cost, start_cost, drafted)
    if drafted == 0:
        return best_affordable(lengths, rate, affordable)
    return best_of([option for option in lengths if option[2] <= affordable], rate)


def options(
    acceptance: Sequence[float],
    costs: DraftCosts,
    draft_cost: float = 0.0,
    start_cost: float = 0.0,
    drafted: int = 0,
) -> list[Option]:
    """All lengths that best_length compares, ascending."""
    lengths: list[Option] = []
    expected, joint = 0.0, 1.0
    spent = costs.of_draft(drafted)
    longest = costs.largest - 1 - drafted
    for count, accepted in enumerate(acceptance[:longest], start=1):
        joint *= accepted
        expected += joint
        cost = costs.of_draft(drafted + count) - spent + count * draft_cost + start_cost
        lengths.append((count, expected, cost))
    return lengths


def best_affordable(lengths: Sequence[Option], rate: float, affordable: float) -> LengthPlan:
    """The best of the affordable options, at the highest rate that one of them reaches."""
    allowed = [option for option in lengths if option[2] <= affordable]
    return best_of(allowed, _reachable(allowed, rate))


def _reachable(lengths: Sequence[Option], rate: float) -> float:
    """A rate, lowered to the highest that an option reaches; never below plain decoding's."""
    if not lengths:
        return 1.0
    return min(rate, max(1.0, *((1.0 + more) / (1.0 + cost) for _, more, cost in lengths)))


def best_of(lengths: Sequence[Option], rate: float) -> LengthPlan:
    """The option with the highest gain, the shortest of equals; NOTHING if none gains."""
    best = NOTHING
    for count, more, cost in lengths:
        gain = more - rate * cost
        if gain > best.gain:
            best = LengthPlan(count, gain)
    return best


def best_suffix(
    acceptance: Sequence[float], body: int, costs: DraftCosts, *, rate: float, affordable: float
) -> int:
    """How many tokens to keep of a prunable suffix, after the body of a draft.

    acceptance: of each token of the draft. affordable: as in best_length, beyond the body.
    """
    joint, further = prod(acceptance[:body]), list(acceptance[body:])
    further[:1] = [joint * first for first in further[:1]]
    return best_length(further, costs, rate=rate, affordable=affordable, drafted=body).length


def predicted_speedup(
    acceptance: Callable[[int], float],
    costs: DraftCosts,
    draft_cost: float = 0.0,
    limit: int = 1 << 30,
    start_cost: float = 0.0,
) -> float:
    """Speedup over plain decoding at the best fixed length, 1 to limit.

    acceptance: by position. draft_cost, start_cost: of a drafted token, and of starting a draft.
    """
    best = 0.0
    expected, joint = 1.0, 1.0
    for count in range(1, min(limit + 1, costs.largest)):
        joint *= acceptance(count - 1)
        expected += joint
        cost = 1.0 + costs.of_draft(count) + count * draft_cost + start_cost
        best = max(best, expected / cost)
    return best


def break_even(
    costs: DraftCosts, draft_cost: float = 0.0, start_cost: float = 0.0, limit: int = 1 << 30
) -> float:
    """Least acceptance, alike at every position, at which some length is no slower than plain.

    draft_cost, start_cost, limit: as in predicted_speedup.
    Leviathan et al. 2023 (arXiv 2211.17192), section 3.3, with measured verification costs.
    Infinite if even accepting every token would not pay.
    """

    def speedup(acceptance: float) -> float:
        return predicted_speedup(lambda _: acceptance, costs, draft_cost, limit, start_cost)

    if speedup(1.0) < 1.0:
        return float("inf")
    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        if speedup(middle) < 1.0:
            low = middle
        else:
            high = middle
    return high
