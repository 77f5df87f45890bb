"""Asking a parked drafter now and then whether it would pay by now, within a budget."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from decoding.cost import CostModel, DraftCost
from decoding.member import Member
from decoding.parking import hopeful_speedup
from decoding.tree_shape import TreeShape, likeliest

_SHARE = 0.01
"""Of decoding, what probes may cost."""

_OPENING = 1.5
_MOST = 4.0
"""What may be spent on probes before anything was decoded, and what may be saved up."""

_LONGEST = 4


@dataclass(frozen=True, slots=True)
class Probe:
    """A draft that is made to learn from: by whom, at what cost, and how long."""

    member: Member
    cost: DraftCost
    length: int

    @property
    def shape(self) -> TreeShape | None:
        """Of one that is planned, with as many nodes."""
        drafter = self.member.planned
        if drafter is None:
            return None
        return likeliest(self.member.by_rank(), self.length, drafter.largest.depth)


class Probing:
    """The budget for probes, in plain steps, and what it is spent on."""

    def __init__(self) -> None:
        self.budget = _OPENING

    def settle(self, tokens: int, lost: float) -> None:
        """Take a step into account: its tokens, and what it lost if it was a probe."""
        self.budget = min(self.budget - lost + _SHARE * tokens, _MOST)

    def next(
        self, members: Iterable[Member], history: Sequence[int], costs: CostModel, limit: int
    ) -> Probe | None:
        """The drafter that may be the best, of those the budget allows to ask.

        What it may be is one standard error above what was seen (Auer et al. 2002, "Finite-time
        analysis of the multiarmed bandit problem"): the less it was seen, the more it may be.
        """
        found: list[Probe] = []
        for member in members:
            is_known_by_lines = member.planned is not None and member.shared_lines is not None
            if member.cost is None or is_known_by_lines:
                continue
            length = self._cheapest(member, member.cost, history, costs, limit)
            probe = Probe(member, member.cost, length)
            if length > 0 and (probe.shape is None or probe.shape.nodes > 0):
                found.append(probe)
        return max(
            found, key=lambda one: hopeful_speedup(one.member, one.cost, costs), default=None
        )

    def _cheapest(
        self,
        member: Member,
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
        judged, together = 0.0, 1.0
        options: list[tuple[float, int]] = []
        for length, accepted in enumerate(member.by_position(0, longest), 1):
            judged += together
            together *= accepted
            gained = judged - 1.0 + together
            price = start + length * draw + passes.of_draft(length)
            if price <= self.budget:
                options.append(((price - start - gained) / judged, length))
        return min(options)[1] if options else 0
