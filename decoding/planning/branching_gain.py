"""Predicts whether trees or several lines of a drafter model may gain over its single lines."""

from collections.abc import Sequence

from decoding.draft import MOST_DRAFTED
from decoding.estimation.cost import CostModel, DraftCost, TreePasses, TreeSize
from decoding.planning.draft_length import best_shape, predicted_speedup
from decoding.planning.managed_drafter import ManagedDrafter

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

_WEAK = 0.55
"""Acceptance of a single line below which one line selected from two gains: measured at 0.46, where
it gained 0.04, and at 0.74, where it lost 0.04 (docs/reference/measurements.md)."""

_GAINED = 0.04
"""Acceptance that one line selected from two gains: measured, 0.50 against 0.46."""


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


def paths_may_gain(managed: ManagedDrafter, cost: DraftCost, costs: CostModel, paths: int) -> bool:
    """Whether a line selected from several may pay where a single one is accepted too rarely.

    Only the drafter pays for the other lines. Where a single line is often accepted, selection
    lowers its acceptance.
    """
    plain = costs.seconds(1)
    level = (cost.draw_seconds + (paths - 1) * cost.read_seconds) / plain
    share = managed.estimates.at_position(0)
    hopeful = predicted_speedup(lambda _: share + _GAINED, costs, level)
    return share < _WEAK and hopeful > _WORTHWHILE
