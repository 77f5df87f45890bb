"""Plans drafts of drafter models: whether to begin, how far to go on, when to retry one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from decoding.draft import Draft
from decoding.drafters.trees import PlannedDrafter, TreeShape
from decoding.estimation.cost import CostModel, DraftCost, TreePasses
from decoding.estimation.draft_cost import BlockCost, LevelCost
from decoding.events import Cause, EmptyDraft
from decoding.joined_pass import room_to_draft
from decoding.planning.draft_length import (
    Option,
    best_affordable,
    best_length,
    best_shape,
    expected_tokens,
    likeliest,
    options,
    predicted_speedup,
    reachable,
    tree_options,
)
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.pausing import hopeful_speedup
from decoding.planning.risk_budget import RiskBudget

_START_STEPS = 32
"""Steps over which the cost of reading missed text is spread when judging whether a drafter pays.
A guess at how long a drafter stays in use; not measured."""

_SAME_RANKS = 0.03
"""Largest change of the acceptance by rank for which the previous tables are used again, as they
take time to compute. A guess; within the error of the estimates."""

_UNBOUNDED = float("inf")

_STALL_SECONDS = 1.0
"""Shortest draft that counts as stalled: an interruption that a user notices. Not measured. Beside
a target that takes longer for a token, a draft may take as long as that."""

_STALL_FACTOR = 20.0
"""Multiple of the expected time from which a draft counts as stalled, far beyond what load on the
machine explains. A guess; not measured."""


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """A draft to be made by a drafter model, with its expected gain.

    limit: the most tokens. affordable: the most that it may lose, in plain steps. rate: recent
    tokens per plain step's time. least: tokens that are drafted whatever their confidence. shape:
    of a tree; None for a line. length: of the line that is expected to gain most.
    """

    managed: ManagedDrafter
    cost: DraftCost
    limit: int
    affordable: float
    rate: float
    gain: float = 0.0
    least: int = 1
    shape: TreeShape | None = None
    length: int = 0


@dataclass(frozen=True, slots=True)
class ModelDraft:
    """The outcome of a plan, empty if the drafter proposed nothing.

    backlog: tokens that the drafter had to read first. seconds: time that it took.
    """

    plan: DraftPlan
    draft: Draft
    backlog: int
    seconds: float

    @property
    def empty_draft(self) -> EmptyDraft:
        """Record of a request without an answer."""
        return EmptyDraft(self.plan.managed.name, self.seconds)


class ModelDraftPlanner:
    """Plans and makes the drafts of drafter models, given the costs of the target's passes."""

    def __init__(self, costs: CostModel, n_vocab: int, clock: Callable[[], float]) -> None:
        self._costs = costs
        self._n_vocab = n_vocab
        self._clock = clock
        self._planned_ranks: dict[tuple[ManagedDrafter, float], Sequence[float]] = {}

    def plan(
        self,
        managed: ManagedDrafter,
        history: Sequence[int],
        limit: int,
        rate: float,
        budget: RiskBudget,
    ) -> DraftPlan | Cause:
        """The draft of a drafter with the highest expected gain, or why there is none."""
        cost = managed.cost
        assert cost is not None, "a free drafter is not planned token by token"
        plain = self._costs.seconds(1)
        if self._costs.kept:
            limit = min(limit, self._costs.kept - 1)
            if limit < 1:
                return Cause.PAYS_NOT
        start = cost.seconds(0, managed.drafter.backlog(history)) / plain
        if managed.planned is not None and isinstance(cost, LevelCost):
            return self._plan_tree(managed, managed.planned, cost, start, limit, rate, budget)
        if isinstance(cost, BlockCost):
            limit = min(limit, cost.longest)
        draw, begin = cost.of_draw(self._costs), cost.begin_seconds / plain
        costs = managed.costs(self._costs)
        estimates, is_shared = managed.estimates, self._costs.is_shared
        expected = estimates.hoped(limit) if is_shared else estimates.by_position(0, limit)
        lengths = options(expected, costs, draw, begin + start / _START_STEPS)
        if not best_affordable(lengths, rate, _UNBOUNDED).length:
            return Cause.PAYS_NOT  # most steps end here, whatever may be risked
        cautious = estimates.shifted(expected, errors=-1.0)
        fixed = begin + self._costs.kept_cost
        least = predicted_speedup(lambda position: cautious[position], costs, draw, limit, fixed)
        is_proven = least > 1.0
        affordable = budget.affordable_if_proven if is_proven else budget.affordable
        if is_shared:  # the whole pass has a budget, by costs that are surely known
            is_steady = self._costs.is_steady and cost.is_steady
            affordable = _UNBOUNDED if is_steady or is_proven else 0.0
        best = best_affordable(lengths, rate, affordable - start)
        if not best.length:
            return Cause.TOO_RISKY
        if self._costs.kept:  # it was chosen at such a rate
            rate = reachable(lengths, rate)
        most = best.length if isinstance(cost, BlockCost) else limit
        return DraftPlan(managed, cost, most, affordable, rate, best.gain, length=best.length)

    def worth(
        self, managed: ManagedDrafter, history: Sequence[int], limit: int, rate: float
    ) -> tuple[list[Option], list[Option]]:
        """Drafts of each length, with the cost of drafting alone: as expected, and at the least."""
        cost, passes = managed.cost, self._costs
        assert cost is not None, "as in plan"
        plain = passes.seconds(1)
        backlog = managed.drafter.backlog(history)
        start = (cost.seconds(0, backlog) / _START_STEPS + cost.begin_seconds) / plain
        if managed.planned is not None and isinstance(cost, LevelCost):
            trees = partial(
                tree_options,
                rate=rate,
                level_cost=lambda width: cost.level(width) / plain,
                largest=managed.planned.largest.within(limit),
                start_cost=start,
            )
            return trees(self._ranks(managed)), trees(self._ranks(managed, errors=-1.0))
        draw = cost.draw_seconds / plain
        expected = managed.estimates.by_position(0, limit)
        drafts = _drafts(expected, draw, start)
        cautious = managed.estimates.shifted(expected[: len(drafts)], errors=-1.0)
        return drafts, _drafts(cautious, draw, start)

    def _plan_tree(
        self,
        managed: ManagedDrafter,
        drafter: PlannedDrafter,
        cost: LevelCost,
        start: float,
        limit: int,
        rate: float,
        budget: RiskBudget,
    ) -> DraftPlan | Cause:
        """The tree with the highest expected gain; start: cost of reading, in plain steps."""
        plain = self._costs.seconds(1)
        best = partial(
            best_shape,
            self._ranks(managed),
            TreePasses(self._costs),
            rate=rate,
            level_cost=lambda width: cost.level(width) / plain,
            largest_nodes=min(drafter.largest.nodes, limit),
            largest_depth=min(drafter.largest.depth, limit),
            start_cost=start / _START_STEPS,
        )
        affordable = budget.affordable_if_proven
        tree = best(affordable=affordable - start)
        if tree.gain > 0.0 and not self._is_proven(managed, cost, tree.shape):
            affordable = budget.affordable
            tree = best(affordable=affordable - start)
        if tree.gain <= 0.0:
            is_refused = best(affordable=_UNBOUNDED).gain > 0.0
            return Cause.TOO_RISKY if is_refused else Cause.PAYS_NOT
        is_line = tree.shape.nodes == tree.shape.depth
        if is_line and managed.shared_lines is not None:  # left to the drafter of lines
            return Cause.PAYS_NOT
        return DraftPlan(managed, cost, limit, affordable, rate, tree.gain, shape=tree.shape)

    def _is_proven(self, managed: ManagedDrafter, cost: LevelCost, shape: TreeShape) -> bool:
        """Whether a tree pays even at one standard error below its estimated acceptance."""
        cautious = shape.expected(managed.estimates.shifted(managed.by_rank(), errors=-1.0))
        drafting = sum(map(cost.level, shape.widths)) / self._costs.seconds(1)
        return cautious > self._costs.of_tree(shape.nodes) + self._costs.kept_cost + drafting

    def _ranks(self, managed: ManagedDrafter, errors: float = 0.0) -> Sequence[float]:
        """Acceptance by rank; the previous one if it has barely changed, as tables are cached."""
        ranks, last = managed.by_rank(), self._planned_ranks.get((managed, errors), ())
        if errors:
            ranks = managed.estimates.shifted(ranks, errors)
        if not last or max(abs(a - b) for a, b in zip(ranks, last, strict=True)) > _SAME_RANKS:
            last = self._planned_ranks[managed, errors] = ranks
        return last

    def beside(self, plan: DraftPlan, history: Sequence[int]) -> DraftPlan | None:
        """As much of a plan as is worth it beside those of other replies; None for nothing."""
        expected = plan.managed.estimates.hoped(plan.length)
        start = plan.cost.seconds(0, plan.managed.drafter.backlog(history))
        count = room_to_draft(expected, plan.cost, start) if expected else None
        if count is None:
            return plan
        return replace(plan, limit=count) if count else None

    def make(self, plan: DraftPlan, history: Sequence[int]) -> ModelDraft:
        """Make a draft that ends where one more token would not pay; drops a drafter that stalls.

        An empty draft counts as a rejected token, and as at least the expected time of one: a quick
        refusal does not show how long tokens take.
        """
        managed = plan.managed
        started = self._clock()
        backlog = managed.drafter.backlog(history)
        if plan.shape is not None:
            managed.plan(plan.shape)
        if isinstance(plan.cost, BlockCost):
            plan.cost.plan(plan.limit)
        keep_on = _WorthOneMore(plan, self._costs, self._clock)
        draft = managed.propose(history, plan.limit, self._n_vocab, keep_on)
        seconds = self._clock() - started
        expected = plan.cost.seconds(max(len(draft), 1), backlog)
        is_own_time = not self._costs.is_shared  # it did not wait for others
        if is_own_time and seconds > max(_STALL_SECONDS, _STALL_FACTOR * expected):
            managed.drop(f"it stalled: {seconds:.1f} s for {len(draft)} tokens")
        if not draft.tokens:
            plan.cost.observe(1, backlog, max(seconds if is_own_time else 0.0, expected))
            if managed.can_draft(history):  # some notice only while reading that they cannot
                managed.estimates.add_silence()
        return ModelDraft(plan, draft, backlog, seconds)


def _drafts(acceptance: Sequence[float], draw: float, start: float) -> list[Option]:
    """Drafts of each length from 0 on, and what drafting them costs.

    Up to the last token that is worth as much as drafting it: longer ones gain less at any width.
    """
    drafts: list[Option] = [(0, 0.0, 0.0)]
    for count, more in enumerate(expected_tokens(acceptance), start=1):
        if more - drafts[-1][1] < draw:
            break
        drafts.append((count, more, start + count * draw))
    return drafts


class _WorthOneMore:
    """Decides after each drafted token whether one more is worth its time."""

    def __init__(self, plan: DraftPlan, costs: CostModel, clock: Callable[[], float]) -> None:
        self._draw = plan.cost.of_draw(costs)
        self._begin = plan.cost.begin_seconds / costs.seconds(1)
        if isinstance(plan.cost, BlockCost):  # all of it is drafted before the first token is seen
            self._begin, self._draw = self._begin + plan.limit * self._draw, 0.0
        self._plan = plan
        self._costs = costs
        self._clock = clock
        self._started = clock()
        self._joint_acceptance = 1.0
        self._drafted = 0
        self._expected = plan.managed.estimates.by_position(0, plan.limit)

    def cost(self, drafted: int) -> float:
        """Cost of drafting so many tokens, in plain steps."""
        return self._begin + drafted * self._draw

    def __call__(self, confidence: float, evidence: int) -> bool:
        plan, drafted = self._plan, self._drafted + 1
        estimates = plan.managed.estimates
        self._drafted = drafted
        self._joint_acceptance *= estimates.of_token(confidence, evidence)
        if drafted < plan.least:
            return True
        if self._clock() - self._started > max(_STALL_SECONDS, self._costs.seconds(1)):
            return False
        further = self._expected[drafted:]
        if not further:
            return False
        if self._costs.kept:  # verifying costs no more within the kept width
            return self._joint_acceptance * further[0] > plan.rate * self._draw
        at_risk = self._costs.of_draft(drafted) + self.cost(drafted)
        best = best_length(
            [self._joint_acceptance * further[0], *further[1:]],
            self._costs,
            rate=plan.rate,
            affordable=plan.affordable - at_risk,
            draft_cost=self._draw,
            drafted=drafted,
        )
        return best.length > 0


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
            if managed.cost is None or learns_from_lines:
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
        if start + begin + draw > self.budget:  # most steps end here: one token is too dear
            return 0
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
