"""Whether a drafter model may gain here by looking along several branches, beside its lines."""

from collections.abc import Sequence

from decoding.estimation.cost import CostModel, DraftCost, TreePasses, TreeSize
from decoding.planning.best_tree import best_shape
from decoding.planning.draft_length import predicted_speedup
from decoding.planning.managed_drafter import ManagedDrafter

_WORTHWHILE = 1.03
"""Predicted speedup over lines from which trees are planned too: estimates are no surer."""

_WEAK = 0.55
_GAINED = 0.04
"""Acceptance of a single line below which one of two was measured to be better, and by how much."""


def trees_may_gain(
    lines: ManagedDrafter,
    by_rank: Sequence[float],
    cost: DraftCost,
    costs: CostModel,
    largest: TreeSize,
) -> bool:
    """Whether the best tree is predicted to beat the best line, at what is known by now.

    by_rank: as best_shape has it. cost: of the drafter, whose passes over several nodes take what
    reading them does. costs: of the target.
    """
    plain = costs.seconds(1)
    draw, further = cost.draw_seconds / plain, cost.read_seconds / plain

    def level(width: int) -> float:
        return draw + (width - 1) * further

    line = max(1.0, predicted_speedup(lines.estimates.at_position, costs, draw))
    found = best_shape(
        by_rank,
        TreePasses(costs),
        rate=line,
        affordable=float("inf"),
        level_cost=level,
        largest_nodes=largest.nodes,
        largest_depth=largest.depth,
    )
    shape = found.shape
    if shape.nodes == shape.depth:  # none, or a line
        return False
    spent = costs.of_tree(shape.nodes) + sum(map(level, shape.widths))
    return (1.0 + found.expected) / (1.0 + spent) > _WORTHWHILE * line


def paths_may_gain(member: ManagedDrafter, cost: DraftCost, costs: CostModel, paths: int) -> bool:
    """Whether one of several lines may do what a single one does not: be accepted at all.

    Only the drafter pays for the others; where a single line is often accepted, they take from it.
    """
    plain = costs.seconds(1)
    level = (cost.draw_seconds + (paths - 1) * cost.read_seconds) / plain
    share = member.estimates.at_position(0)
    hoped = predicted_speedup(lambda _: share + _GAINED, costs, level)
    return share < _WEAK and hoped > _WORTHWHILE
