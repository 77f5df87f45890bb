"""Which drafters pay: the state of each with a reason, and whether trees may gain."""

from collections.abc import Sequence
from dataclasses import dataclass

from decoding.draft import MOST_DRAFTED
from decoding.estimation.cost import BUSY, CostModel, DraftCost, TreePasses, TreeSize
from decoding.events import Shortfall, State
from decoding.planning.draft_length import best_shape, break_even, predicted_speedup
from decoding.planning.managed_drafter import ManagedDrafter

_PAUSED_AFTER = 32
"""Proposals in a row not worth sending after which a free drafter is shown as paused. It affects
only what is shown; a guess, not measured."""


@dataclass(frozen=True, slots=True)
class DrafterStatus:
    """State of a drafter; the reason is empty while it is on.

    shortfall: None unless it is paused for an acceptance that was measured.
    """

    name: str
    state: State
    reason: str = ""
    shortfall: Shortfall | None = None


def drafter_status(managed: ManagedDrafter, costs: CostModel) -> DrafterStatus:
    if managed.dropped:
        return DrafterStatus(managed.name, State.OFF, managed.dropped)
    if managed.unable:
        return DrafterStatus(managed.name, State.PAUSED, managed.unable)
    if managed.cost is None:
        draw_cost = start_cost = 0.0
        paused = managed.unsent >= _PAUSED_AFTER
    else:
        draw_cost, start_cost = _in_plain_steps(managed.cost, costs)
        acceptance, passes = managed.estimates.at_position, managed.costs(costs)
        speedup = predicted_speedup(acceptance, passes, draw_cost, start_cost=start_cost)
        paused = speedup <= 1.0
    if not paused:
        return DrafterStatus(managed.name, State.ON)
    shortfall = None
    if managed.costs(costs).largest == 1:
        reason = f"its passes are longer than the {costs.largest} tokens that were measured here"
    else:
        is_steady = costs.is_steady and (managed.cost is None or managed.cost.is_steady)
        needed = break_even(managed.costs(costs), draw_cost, start_cost)
        shortfall = _shortfall(managed, needed)
        reason = _reason(managed, needed)
        reason += "" if is_steady else f" (costs {BUSY})"
    return DrafterStatus(managed.name, State.PAUSED, reason, shortfall)


def _shortfall(managed: ManagedDrafter, needed: float) -> Shortfall | None:
    judged = managed.estimates.judged
    if judged.judged <= 0.0 or not judged.accepted / judged.judged < needed <= 1.0:
        return None
    return Shortfall(judged.accepted / judged.judged, needed)


def is_promising(managed: ManagedDrafter, costs: CostModel) -> bool:
    """Whether a drafter model may pay: at one standard error above its acceptance, if tried."""
    if managed.cost is None or managed.dropped or managed.unable:
        return False
    if managed.estimates.is_untried:
        return break_even(managed.costs(costs), *_in_plain_steps(managed.cost, costs)) < 1.0
    return hopeful_speedup(managed, managed.cost, costs) > 1.0


def hopeful_speedup(managed: ManagedDrafter, cost: DraftCost, costs: CostModel) -> float:
    """Predicted speedup of a drafter model at one standard error above its acceptance."""
    estimates = managed.estimates
    hopeful = estimates.shifted(estimates.by_position(0, costs.largest), errors=1.0)
    draw_cost, start_cost = _in_plain_steps(cost, costs)
    return predicted_speedup(
        lambda position: hopeful[position], managed.costs(costs), draw_cost, start_cost=start_cost
    )


def _in_plain_steps(cost: DraftCost, costs: CostModel) -> tuple[float, float]:
    """Cost of a drafted token, and of a draft whatever its length."""
    return cost.of_draw(costs), cost.begin_seconds / costs.seconds(1)


def overall(statuses: Sequence[DrafterStatus]) -> tuple[State, str]:
    states = [status.state for status in statuses]
    reasons = "; ".join(f"{status.name}: {status.reason}" for status in statuses if status.reason)
    for state in (State.ON, State.PAUSED):
        if state in states:
            return state, reasons
    return State.OFF, reasons


def least_shortfall(statuses: Sequence[DrafterStatus]) -> Shortfall | None:
    """Shortfall of the drafter that is closest to paying; None if none was measured."""
    measured = [status.shortfall for status in statuses if status.shortfall is not None]
    return max(measured, key=lambda short: short.accepted / short.needed, default=None)


def _reason(managed: ManagedDrafter, needed: float) -> str:
    if needed > 1.0:
        return "slower than plain here even if every drafted token were accepted"
    return f"slower than plain: needs acceptance {needed:.2f}, {_known(managed, needed)}"


def _known(managed: ManagedDrafter, needed: float) -> str:
    """The drafter's acceptance as far as it is known, and the source."""
    estimates = managed.estimates
    judged, recalled = estimates.judged, estimates.recalled
    if judged.judged > 0.0:
        share = f"{judged.accepted / judged.judged:.2f}"
        if judged.accepted >= needed * judged.judged:
            return f"has {share} so far and is expected to have less"
        # Proposals that were not sent are judged too, against the model's own tokens.
        return f"has {share}" if managed.cost else f"{share} of its guesses came true"
    if recalled is None:
        return (
            "proposed nothing"
            if estimates.was_silent
            else f"untried, {estimates.prior:.2f} assumed"
        )
    is_trial = estimates.acceptance.is_trial
    return f"a trial expects {recalled:.2f}" if is_trial else f"had {recalled:.2f}"


_USUAL, _LARGE = TreeSize(8, 32), TreeSize(24, MOST_DRAFTED)
"""Limits of trees that the user did not request: usually, and where passes cost nearly alike.
Guesses, not measured."""

_SLOW_SECONDS = 0.2
"""Plain step beside which planning a large tree, some 20 ms, takes no time."""

_FLAT = 3.0
"""Plain steps that the longest measured pass takes less than, where passes cost nearly alike: 1.7
and 2.3 were measured of models read from disk (docs/how-it-works/controller.md)."""

_WORTHWHILE = 1.03
"""Predicted speedup over lines from which trees are planned too; a smaller one is within the error
of the estimates. A guess; not measured."""


def is_flat(costs: CostModel) -> bool:
    """Whether passes of a slow target cost nearly alike, so that trees may grow as they like."""
    is_measured = costs.largest > _USUAL.nodes
    return (
        is_measured and costs.seconds(1) > _SLOW_SECONDS and costs.relative(costs.largest) < _FLAT
    )


def largest_tree(costs: CostModel) -> TreeSize:
    """Limits of trees that the user did not request; costs: of the target."""
    return _LARGE if is_flat(costs) else _USUAL


def trees_may_gain(
    lines: ManagedDrafter,
    by_rank: Sequence[float],
    cost: DraftCost,
    costs: CostModel,
    largest: TreeSize,
) -> bool:
    """Whether the best tree is predicted to beat the best line, by present estimates.

    by_rank: as in best_shape. cost: of the drafter, whose further nodes in a pass cost as much as
    reading tokens. costs: of the target.
    """
    plain = costs.seconds(1)
    draw, further = cost.draw_seconds / plain, cost.read_seconds / plain

    def level(width: int) -> float:
        return draw + (width - 1) * further

    line = max(1.0, predicted_speedup(lines.estimates.at_position, costs, draw))
    tree = best_shape(
        by_rank,
        TreePasses(costs),
        rate=line,
        affordable=float("inf"),
        level_cost=level,
        largest_nodes=largest.nodes,
        largest_depth=largest.depth,
    )
    shape = tree.shape
    if shape.nodes == shape.depth:  # nothing, or a line
        return False
    spent = costs.of_tree(shape.nodes) + sum(map(level, shape.widths))
    return (1.0 + tree.expected) / (1.0 + spent) > _WORTHWHILE * line
