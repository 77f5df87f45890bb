"""Retries parked drafter models now and then, within a budget."""

from collections.abc import Iterable, Sequence

from decoding.estimation.block_cost import BlockCost
from decoding.estimation.cost import CostModel, DraftCost
from decoding.planning.best_tree import likeliest
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.model_draft_planner import DraftPlan
from decoding.planning.parking import hopeful_speedup
from decoding.tree_shape import TreeShape

_SHARE = 0.01
"""Share of decoding that probes may cost: the bound that is promised."""

_OPENING = 1.5
"""Largest budget before anything was decoded, in plain steps: one short draft, as retries are
cheapest early in a reply. A guess; not measured."""

_MOST = 4.0
"""Largest budget that can be saved up, in plain steps: enough for a draft of _LONGEST tokens on a
two-core processor, where 4 tokens cost 2.6. A guess; not measured."""

_LEAST_OPENING, _OPENING_TOKENS = 0.5, 3
"""Budget before anything was decoded where passes cost nearly alike, in plain steps, and tokens of
a draft whose verification it covers otherwise. With the whole of _OPENING, a first reply of 128
tokens lost up to 2.8 % with a drafter that is always wrong, now 2.5 % (simulated,
tests/decoding/planning/test_flat_curves.py)."""

_LONGEST = 4
"""Longest probe: later positions are rarely reached and teach little. A guess; not measured."""


class Probing:
    """Budget for probes, in plain steps, and the choice of what to probe."""

    def __init__(self, costs: CostModel) -> None:
        """costs: of the target; where a lost draft costs little, the budget opens with less."""
        drafted = min(_OPENING_TOKENS, costs.largest - 1)
        self.budget = min(_OPENING, max(_LEAST_OPENING, costs.of_draft(drafted)))

    def settle(self, tokens: int, lost: float) -> None:
        """Record a step: its tokens, and the plain steps it lost if it was a probe."""
        self.budget = min(self.budget - lost + _SHARE * tokens, _MOST)

    def next(
        self,
        drafters: Iterable[ManagedDrafter],
        history: Sequence[int],
        costs: CostModel,
        limit: int,
        rate: float,
    ) -> DraftPlan | None:
        """A probe of the drafter that may be the best, of those that the budget covers.

        Each is judged at one standard error above its observed acceptance (Auer et al. 2002,
        "Finite-time analysis of the multiarmed bandit problem"): the fewer observations, the more.
        """
        probes: list[DraftPlan] = []
        for managed in drafters:
            learns_from_lines = managed.planned is not None and managed.shared_lines is not None
            if managed.cost is None or learns_from_lines or managed.in_turn is not None:
                continue
            length = self._best_length(managed, managed.cost, history, costs, limit)
            shape = _shape(managed, length)
            if length > 0 and (shape is None or shape.nodes > 0):
                probes.append(
                    DraftPlan(
                        managed, managed.cost, length, self.budget, rate, least=length, shape=shape
                    )
                )
        return max(
            probes,
            key=lambda probe: hopeful_speedup(probe.managed, probe.cost, costs),
            default=None,
        )

    def _best_length(
        self,
        managed: ManagedDrafter,
        cost: DraftCost,
        history: Sequence[int],
        costs: CostModel,
        limit: int,
    ) -> int:
        """The affordable length that costs least per judged token, 0 for none.

        Waiting for a larger budget would not pay: the backlog grows with every step.
        """
        plain = costs.seconds(1)
        draw, begin = cost.draw_seconds / plain, cost.begin_seconds / plain
        start = cost.seconds(0, managed.drafter.backlog(history)) / plain
        passes = managed.costs(costs)
        longest = min(limit, _LONGEST, passes.largest - 1)
        if isinstance(cost, BlockCost):
            longest = min(longest, cost.longest)
        judged, joint = 0.0, 1.0
        lengths: list[tuple[float, int]] = []
        for length, acceptance in enumerate(managed.estimates.by_position(0, longest), 1):
            judged += joint
            joint *= acceptance
            gained = judged - 1.0 + joint
            price = start + begin + length * draw + passes.of_draft(length)
            if price <= self.budget:
                lengths.append(((price - start - gained) / judged, length))
        return min(lengths)[1] if lengths else 0


def _shape(managed: ManagedDrafter, length: int) -> TreeShape | None:
    """The shape of a planned tree of length nodes; None for a drafter of lines."""
    if managed.planned is None:
        return None
    return likeliest(managed.by_rank(), length, managed.planned.largest.depth)
