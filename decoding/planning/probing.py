"""Asking a parked drafter now and then whether it would pay by now, within a budget."""

from collections.abc import Iterable, Sequence

from decoding.estimation.cost import CostModel, DraftCost
from decoding.planning.best_tree import likeliest
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.model_draft_planner import DraftPlan
from decoding.planning.parking import hopeful_speedup
from decoding.tree_shape import TreeShape

_SHARE = 0.01
"""Of decoding, what probes may cost."""

_OPENING = 1.5
_MOST = 4.0
"""What may be spent on probes before anything was decoded, and what may be saved up."""

_LONGEST = 4


class Probing:
    """The budget for probes, in plain steps, and what it is spent on."""

    def __init__(self) -> None:
        self.budget = _OPENING

    def settle(self, tokens: int, lost: float) -> None:
        """Take a step into account: its tokens, and what it lost if it was a probe."""
        self.budget = min(self.budget - lost + _SHARE * tokens, _MOST)

    def next(
        self,
        members: Iterable[ManagedDrafter],
        history: Sequence[int],
        costs: CostModel,
        limit: int,
        rate: float,
    ) -> DraftPlan | None:
        """A draft of the drafter that may be the best, of those that the budget allows to ask.

        Each is judged at one standard error above what was seen (Auer et al. 2002, "Finite-time
        analysis of the multiarmed bandit problem"): the less was seen of it, the more it may be.
        """
        probes: list[DraftPlan] = []
        for member in members:
            is_known_by_lines = member.planned is not None and member.shared_lines is not None
            if member.cost is None or is_known_by_lines:
                continue
            length = self._cheapest(member, member.cost, history, costs, limit)
            shape = _shape(member, length)
            if length > 0 and (shape is None or shape.nodes > 0):
                probes.append(
                    DraftPlan(
                        member, member.cost, length, self.budget, rate, least=length, shape=shape
                    )
                )
        return max(
            probes,
            key=lambda probe: hopeful_speedup(probe.member, probe.cost, costs),
            default=None,
        )

    def _cheapest(
        self,
        member: ManagedDrafter,
        cost: DraftCost,
        history: Sequence[int],
        costs: CostModel,
        limit: int,
    ) -> int:
        """The length that costs least for each token it will judge, of those the budget allows.

        Waiting for a larger budget would not pay: the backlog grows with every step.
        """
        plain = costs.seconds(1)
        draw = cost.draw_seconds / plain
        start = cost.seconds(0, member.drafter.backlog(history)) / plain
        passes = member.costs(costs)
        longest = min(limit, _LONGEST, passes.largest - 1)
        judged, joint = 0.0, 1.0
        lengths: list[tuple[float, int]] = []
        for length, acceptance in enumerate(member.estimates.by_position(0, longest), 1):
            judged += joint
            joint *= acceptance
            gained = judged - 1.0 + joint
            price = start + length * draw + passes.of_draft(length)
            if price <= self.budget:
                lengths.append(((price - start - gained) / judged, length))
        return min(lengths)[1] if lengths else 0


def _shape(member: ManagedDrafter, length: int) -> TreeShape | None:
    """The shape of a planned tree with so many nodes, None for a drafter without plans."""
    if member.planned is None:
        return None
    return likeliest(member.by_rank(), length, member.planned.largest.depth)
