"""Drafts that cost time: whether one should begin, and after each token whether it should go on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from decoding.cost import CostModel, DraftCost, TreePasses
from decoding.credit import Credit
from decoding.draft import Draft
from decoding.drafters.planned import PlannedDrafter
from decoding.length import best_affordable, best_length, best_tail, options, predicted_speedup
from decoding.level_cost import LevelCost
from decoding.member import Member
from decoding.silence import Silence
from decoding.tree_shape import TreeShape, best_shape

_START_STEPS = 32
"""Steps over which reading what a drafter missed is spread when judging whether it pays."""

_ABOUT_THE_SAME = 0.03
"""By which the ranks of a tree may change before it is planned anew, which takes time."""

_UNBOUNDED = float("inf")
_STALL_SECONDS = 1.0
_STALL_FACTOR = 20.0


@dataclass(frozen=True, slots=True)
class Order:
    """A draft that is to be drawn, with what it is expected to gain.

    limit: the most tokens. least: as many are drawn whatever they are. allowed: the most that it
    may lose, in plain steps. rate: tokens lately in the time of a plain step.
    """

    member: Member
    cost: DraftCost
    limit: int
    allowed: float
    rate: float
    gain: float = 0.0
    least: int = 1
    shape: TreeShape | None = None


class Drawing:
    """Plans and draws the drafts of members that cost time, in the costs of the target's passes."""

    def __init__(self, costs: CostModel, n_vocab: int, clock: Callable[[], float]) -> None:
        self._costs = costs
        self._n_vocab = n_vocab
        self._clock = clock
        self.backlog = 0
        """Tokens that the drafter of the last draft had to read first."""
        self.refused = False
        """Whether a draft was expected to pay, and could not be afforded, since this was unset."""
        self._ranks: dict[str, Sequence[float]] = {}

    def plan(
        self, member: Member, history: Sequence[int], limit: int, rate: float, credit: Credit
    ) -> Order | None:
        """The draft of a member that is expected to gain most, None if none can be afforded."""
        cost = member.cost
        assert cost is not None, "what is free is not drawn token by token"
        plain = self._costs.seconds(1)
        start = cost.seconds(0, member.drafter.backlog(history)) / plain
        if member.planned is not None and isinstance(cost, LevelCost):
            return self._plan_tree(member, member.planned, cost, start, limit, rate, credit)
        draw = cost.draw_seconds / plain
        costs = member.costs(self._costs)
        expected = member.by_position(0, limit)
        surely = member.shifted(expected, errors=-1.0)
        pays = predicted_speedup(lambda place: surely[place], costs, draw, limit) > 1.0
        allowed = credit.trusting if pays else credit.affordable
        found = options(expected, costs, draw, start / _START_STEPS)
        plan = best_affordable(found, rate, allowed - start)
        if plan.length:
            return Order(member, cost, limit, allowed, rate, plan.gain)
        self.refused |= best_affordable(found, rate, _UNBOUNDED).length > 0
        return None

    def _plan_tree(
        self,
        member: Member,
        drafter: PlannedDrafter,
        cost: LevelCost,
        start: float,
        limit: int,
        rate: float,
        credit: Credit,
    ) -> Order | None:
        """The same of one whose trees can be planned; start: what reading takes, in plain steps."""
        plain = self._costs.seconds(1)
        best = partial(
            best_shape,
            self._settled(member),
            TreePasses(self._costs),
            rate=rate,
            level_cost=lambda width: cost.level(width) / plain,
            largest_nodes=min(drafter.largest.nodes, limit),
            largest_depth=min(drafter.largest.depth, limit),
            start_cost=start / _START_STEPS,
        )
        allowed = credit.trusting
        found = best(affordable=allowed - start)
        if found.gain > 0.0 and not self._surely_pays(member, cost, found.shape):
            allowed = credit.affordable
            found = best(affordable=allowed - start)
        if found.gain <= 0.0:
            self.refused |= best(affordable=_UNBOUNDED).gain > 0.0
            return None
        is_line = found.shape.nodes == found.shape.depth
        if is_line and member.shared_lines is not None:  # that is theirs to draft
            return None
        return Order(member, cost, limit, allowed, rate, found.gain, shape=found.shape)

    def _surely_pays(self, member: Member, cost: LevelCost, shape: TreeShape) -> bool:
        """Whether a tree would, at one standard error less than what is known of its ranks."""
        surely = shape.expected(member.shifted(member.by_rank(), errors=-1.0))
        drafting = sum(map(cost.level, shape.widths)) / self._costs.seconds(1)
        return surely > self._costs.of_tree(shape.nodes) + drafting

    def _settled(self, member: Member) -> Sequence[float]:
        """The ranks of a tree: those it was planned by last, whose tables are kept, if about so."""
        ranks, last = member.by_rank(), self._ranks.get(member.name, ())
        if not last or max(abs(a - b) for a, b in zip(ranks, last, strict=True)) > _ABOUT_THE_SAME:
            last = self._ranks[member.name] = ranks
        return last

    def draw(self, order: Order, history: Sequence[int]) -> Draft | Silence:
        """A draft, ended where one more token would not pay; a member that stalls is dropped.

        Silence counts as a token that was rejected, and at least as long as one takes to draw: that
        it came at once tells nothing of how long others take.
        """
        member = order.member
        started = self._clock()
        self.backlog = member.drafter.backlog(history)
        if order.shape is not None:
            member.plan(order.shape)
        keep_on = _Pays(order, self._costs, self._clock)
        draft = member.propose(history, order.limit, self._n_vocab, keep_on)
        seconds = self._clock() - started
        expected = order.cost.seconds(max(draft.body, 1), self.backlog)
        if seconds > max(_STALL_SECONDS, _STALL_FACTOR * expected):
            proposal = member.proposal
            member.drop(f"it stalled: {seconds:.1f} s for {len(draft)} tokens")
            member.proposal = proposal  # what was drawn stands
        if not draft.tokens:
            order.cost.observe(1, self.backlog, max(seconds, expected))
            if member.can_draft(history):  # some find out as they read that they cannot
                member.had_nothing_to_say()
            return Silence(member.name, seconds)
        return self._cut(draft, order, keep_on.draw) if draft.prunable_suffix else draft

    def _cut(self, draft: Draft, order: Order, draw: float) -> Draft:
        """A drawn draft with as much of its prunable suffix as is expected to pay."""
        lost = self._costs.of_draft(draft.body) + draft.body * draw
        kept = best_tail(
            order.member.estimates(draft),
            draft.body,
            self._costs,
            rate=order.rate,
            affordable=order.allowed - lost,
        )
        return draft.first(draft.body + kept)


class _Pays:
    """Whether one token more is worth its time, asked after each token drawn."""

    def __init__(self, order: Order, costs: CostModel, clock: Callable[[], float]) -> None:
        self.draw = order.cost.draw_seconds / costs.seconds(1)
        """What a token takes to draw, in plain steps."""
        self._order = order
        self._costs = costs
        self._clock = clock
        self._started = clock()
        self._together = 1.0
        self._drawn = 0

    def __call__(self, confidence: float, evidence: int) -> bool:
        order, drawn = self._order, self._drawn + 1
        self._drawn = drawn
        self._together *= order.member.estimate(confidence, evidence)
        if drawn < order.least:
            return True
        if self._clock() - self._started > _STALL_SECONDS:
            return False
        further = order.member.by_position(drawn, order.limit - drawn)
        if not further:
            return False
        lost = self._costs.of_draft(drawn) + drawn * self.draw
        plan = best_length(
            [self._together * further[0], *further[1:]],
            self._costs,
            rate=order.rate,
            affordable=order.allowed - lost,
            draft_cost=self.draw,
            drafted=drawn,
        )
        return plan.length > 0
