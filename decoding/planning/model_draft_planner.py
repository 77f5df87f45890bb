"""Drafts that cost time: whether one should begin, and after each token whether it should go on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from decoding.draft import Draft
from decoding.drafters.model.planned import PlannedDrafter
from decoding.estimation.cost import CostModel, DraftCost, TreePasses
from decoding.estimation.level_cost import LevelCost
from decoding.planning.best_tree import best_shape
from decoding.planning.decision import Cause
from decoding.planning.draft_length import (
    best_affordable,
    best_length,
    best_tail,
    options,
    predicted_speedup,
)
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.risk_budget import RiskBudget
from decoding.silence import Silence
from decoding.tree_shape import TreeShape

_START_STEPS = 32
"""Steps over which reading what a drafter missed is spread when judging whether it pays."""

_ABOUT_THE_SAME = 0.03
"""By which the ranks of a tree may change before it is planned anew, which takes time."""

_UNBOUNDED = float("inf")
_STALL_SECONDS = 1.0
_STALL_FACTOR = 20.0


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """A draft to be made, with its expected gain.

    limit: the most tokens. least: as many are drafted whatever they are. allowed: the most that it
    may lose, in plain steps. rate: tokens lately in the time of a plain step.
    """

    member: ManagedDrafter
    cost: DraftCost
    limit: int
    allowed: float
    rate: float
    gain: float = 0.0
    least: int = 1
    shape: TreeShape | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a plan produced, empty if the drafter had nothing to propose.

    proposal: all that the drafter proposed, from which it learns. draft: what is worth verifying of
    it. backlog: tokens that the drafter had to read first. seconds: that it took.
    """

    order: DraftPlan
    proposal: Draft
    draft: Draft
    backlog: int
    seconds: float

    @property
    def silence(self) -> Silence:
        """The record of a drafter that was asked in vain."""
        return Silence(self.order.member.name, self.seconds)


class ModelDraftPlanner:
    """Plans and makes the drafts of members that cost time, at the costs of the target's passes."""

    def __init__(self, costs: CostModel, n_vocab: int, clock: Callable[[], float]) -> None:
        self._costs = costs
        self._n_vocab = n_vocab
        self._clock = clock
        self._planned_ranks: dict[ManagedDrafter, Sequence[float]] = {}

    def plan(
        self,
        member: ManagedDrafter,
        history: Sequence[int],
        limit: int,
        rate: float,
        credit: RiskBudget,
    ) -> DraftPlan | Cause:
        """The draft of a member that is expected to gain most, or why there is none."""
        cost = member.cost
        assert cost is not None, "a free drafter is not asked token by token"
        plain = self._costs.seconds(1)
        start = cost.seconds(0, member.drafter.backlog(history)) / plain
        if member.planned is not None and isinstance(cost, LevelCost):
            return self._plan_tree(member, member.planned, cost, start, limit, rate, credit)
        draw = cost.draw_seconds / plain
        costs = member.costs(self._costs)
        expected = member.estimates.by_position(0, limit)
        at_least = member.estimates.shifted(expected, errors=-1.0)
        pays = predicted_speedup(lambda position: at_least[position], costs, draw, limit) > 1.0
        allowed = credit.trusting if pays else credit.affordable
        lengths = options(expected, costs, draw, start / _START_STEPS)
        best = best_affordable(lengths, rate, allowed - start)
        if best.length:
            return DraftPlan(member, cost, limit, allowed, rate, best.gain)
        is_refused = best_affordable(lengths, rate, _UNBOUNDED).length > 0
        return Cause.TOO_RISKY if is_refused else Cause.PAYS_NOT

    def _plan_tree(
        self,
        member: ManagedDrafter,
        drafter: PlannedDrafter,
        cost: LevelCost,
        start: float,
        limit: int,
        rate: float,
        credit: RiskBudget,
    ) -> DraftPlan | Cause:
        """The tree of a member that is expected to gain most; start: of reading, in plain steps."""
        plain = self._costs.seconds(1)
        best = partial(
            best_shape,
            self._ranks(member),
            TreePasses(self._costs),
            rate=rate,
            level_cost=lambda width: cost.level(width) / plain,
            largest_nodes=min(drafter.largest.nodes, limit),
            largest_depth=min(drafter.largest.depth, limit),
            start_cost=start / _START_STEPS,
        )
        allowed = credit.trusting
        plan = best(affordable=allowed - start)
        if plan.gain > 0.0 and not self._surely_pays(member, cost, plan.shape):
            allowed = credit.affordable
            plan = best(affordable=allowed - start)
        if plan.gain <= 0.0:
            is_refused = best(affordable=_UNBOUNDED).gain > 0.0
            return Cause.TOO_RISKY if is_refused else Cause.PAYS_NOT
        is_line = plan.shape.nodes == plan.shape.depth
        if is_line and member.shared_lines is not None:  # that is theirs to draft
            return Cause.PAYS_NOT
        return DraftPlan(member, cost, limit, allowed, rate, plan.gain, shape=plan.shape)

    def _surely_pays(self, member: ManagedDrafter, cost: LevelCost, shape: TreeShape) -> bool:
        """Whether a tree pays at one standard error less than is known of its ranks."""
        at_least = shape.expected(member.estimates.shifted(member.by_rank(), errors=-1.0))
        drafting = sum(map(cost.level, shape.widths)) / self._costs.seconds(1)
        return at_least > self._costs.of_tree(shape.nodes) + drafting

    def _ranks(self, member: ManagedDrafter) -> Sequence[float]:
        """Acceptance by rank; about the same as last time is the same, whose tables are cached."""
        ranks, last = member.by_rank(), self._planned_ranks.get(member, ())
        if not last or max(abs(a - b) for a, b in zip(ranks, last, strict=True)) > _ABOUT_THE_SAME:
            last = self._planned_ranks[member] = ranks
        return last

    def draw(self, order: DraftPlan, history: Sequence[int]) -> Drawn:
        """Make a draft, ended where one more token would not pay; a member that stalls is dropped.

        An empty one counts as a rejected token, and as no less time than a token takes: that it was
        quick does not show how long others take.
        """
        member = order.member
        started = self._clock()
        backlog = member.drafter.backlog(history)
        if order.shape is not None:
            member.plan(order.shape)
        keep_on = _WorthOneMore(order, self._costs, self._clock)
        proposal = member.propose(history, order.limit, self._n_vocab, keep_on)
        seconds = self._clock() - started
        expected = order.cost.seconds(max(proposal.body, 1), backlog)
        if seconds > max(_STALL_SECONDS, _STALL_FACTOR * expected):
            member.drop(f"it stalled: {seconds:.1f} s for {len(proposal)} tokens")
        if not proposal.tokens:
            order.cost.observe(1, backlog, max(seconds, expected))
            if member.can_draft(history):  # some notice only as they read that they cannot
                member.estimates.add_silence()
        draft = self._cut(proposal, order, keep_on.draw) if proposal.prunable_suffix else proposal
        return Drawn(order, proposal, draft, backlog, seconds)

    def _cut(self, draft: Draft, order: DraftPlan, draw: float) -> Draft:
        """A draft with as much of its tail as is expected to pay."""
        lost = self._costs.of_draft(draft.body) + draft.body * draw
        kept = best_tail(
            order.member.estimates.of_draft(draft),
            draft.body,
            self._costs,
            rate=order.rate,
            affordable=order.allowed - lost,
        )
        return draft.first(draft.body + kept)


class _WorthOneMore:
    """Decides after each drafted token whether one more is worth its time."""

    def __init__(self, order: DraftPlan, costs: CostModel, clock: Callable[[], float]) -> None:
        self.draw = order.cost.draw_seconds / costs.seconds(1)
        """What a token takes to draft, in plain steps."""
        self._order = order
        self._costs = costs
        self._clock = clock
        self._started = clock()
        self._joint_acceptance = 1.0
        self._drawn = 0

    def __call__(self, confidence: float, evidence: int) -> bool:
        order, drawn = self._order, self._drawn + 1
        estimates = order.member.estimates
        self._drawn = drawn
        self._joint_acceptance *= estimates.of_token(confidence, evidence)
        if drawn < order.least:
            return True
        if self._clock() - self._started > _STALL_SECONDS:
            return False
        further = estimates.by_position(drawn, order.limit - drawn)
        if not further:
            return False
        lost = self._costs.of_draft(drawn) + drawn * self.draw
        plan = best_length(
            [self._joint_acceptance * further[0], *further[1:]],
            self._costs,
            rate=order.rate,
            affordable=order.allowed - lost,
            draft_cost=self.draw,
            drafted=drawn,
        )
        return plan.length > 0
