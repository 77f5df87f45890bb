"""A drafter under the controller, with its cost and its estimated acceptance."""

from dataclasses import replace

from decoding.draft import Draft, Drafter
from decoding.drafters.composed.cascade import Cascade
from decoding.drafters.model.planned import Growth, PlannedDrafter
from decoding.estimation import rank_acceptance
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.acceptance_estimates import POSITION_PRIOR, AcceptanceEstimates
from decoding.estimation.acceptance_keys import GREEDY
from decoding.estimation.cost import (
    CostModel,
    DraftCost,
    DraftCosts,
    TreeCosts,
    TreePasses,
    TreeSize,
)
from decoding.estimation.draft_outcome import learn_line, learn_tree
from decoding.estimation.level_cost import LevelCost
from decoding.estimation.line_equivalent import as_line, kept_of
from decoding.events import Step
from decoding.forms import Tree
from decoding.overlap.overlap_cost import OverlapCost, OverlappedPasses, Slowdown
from decoding.planning.fault_guard import FaultGuard
from decoding.sampling.lossy_rule import LossyRule
from decoding.tree_shape import TreeShape


class ManagedDrafter(FaultGuard):
    """A guarded drafter with its cost, its estimated acceptance and the form of its drafts.

    cost: None for a free drafter. acceptance: counts learned in earlier sessions. tree: size of its
    drafts if these are trees, None for lines. prior: acceptance expected until it is known.
    planned: the drafter, if its trees can be planned. lines: the managed drafter of single lines of
    the same drafter model, which learns from this one's drafts as if it had drafted them. slowdown:
    of the target's passes while it drafts ahead, None if it does not. in_turn: the managed drafter
    of the same lines that are not drafted ahead, whose estimates it shares.
    """

    def __init__(
        self,
        drafter: Drafter,
        acceptance: Acceptance | None = None,
        cost: DraftCost | None = None,
        tree: TreeSize | None = None,
        prior: float = POSITION_PRIOR,
        planned: PlannedDrafter | None = None,
        lines: "ManagedDrafter | None" = None,
        slowdown: Slowdown | None = None,
        in_turn: "ManagedDrafter | None" = None,
    ) -> None:
        super().__init__(drafter)
        self.cost = cost
        self.planned = planned
        self.lines = lines
        self.slowdown = slowdown
        self.in_turn = in_turn
        self.estimates = in_turn.estimates if in_turn else AcceptanceEstimates(acceptance, prior)
        self.unsent = 0
        """Number of proposals in a row that were not worth sending."""
        self._tree = tree

    def as_new(self) -> "ManagedDrafter":
        """The same drafter with nothing learned; its component drafters draft at no cost."""
        drafter = self.drafter
        if isinstance(drafter, Cascade):
            drafter = drafter.at_no_cost()
        prior = self.estimates.prior
        new = ManagedDrafter(drafter, None, self.cost, self._tree, prior, self.planned)
        new.dropped = self.dropped
        return new

    def begin(self, temperature: float, rule: LossyRule | None = None) -> None:
        """Start a reply at a temperature, under a lossy rule if one is given."""
        self.estimates.begin(temperature, rule)

    def costs(self, passes: CostModel) -> DraftCosts:
        """Cost of verifying its drafts, by number of tokens that may be accepted."""
        if self.slowdown is not None:
            return OverlappedPasses(passes, self.slowdown)
        if self.planned is not None:  # a lower bound: the tree may be a single branch
            return TreePasses(passes)
        return TreeCosts(passes, self._tree) if self._tree else passes

    def plan(self, shape: TreeShape, growth: Growth | None = None) -> None:
        """Draft trees of this shape from now on; growth: as in PlannedDrafter."""
        if self.planned is not None and isinstance(self.cost, LevelCost):
            self.planned.plan(shape, growth)
            self.cost.plan(shape.widths)

    def grew(self, tree: Tree) -> None:
        """Set the levels of a tree that grew beyond its planned shape, by which it cost."""
        if isinstance(self.cost, LevelCost):
            self.cost.plan(TreeShape(tree.parents, (0,) * len(tree.parents)).widths)

    @property
    def shared_lines(self) -> "ManagedDrafter | None":
        """The drafter of lines of the same model, while both learn from each draft."""
        if self.lines is None or self.lines.dropped or not self.estimates.is_lossless:
            return None
        return self.lines

    def by_rank(self) -> list[float]:
        """Probability that the child of each rank is accepted, given that its parent is."""
        estimates, lines = self.estimates, self.shared_lines
        acceptance, bucket = estimates.acceptance, estimates.bucket
        if lines is not None:  # first children are the tokens of a line
            first = lines.estimates.acceptance.in_this_reply(lines.estimates.mean_at_any_position)
        else:
            first = rank_acceptance.of_first(acceptance, bucket, estimates.mean_at_any_position)
        return rank_acceptance.by_rank(acceptance, bucket, first)

    def learn(self, draft: Draft, step: Step, *, is_taught: bool = False) -> None:
        """Learn from the outcome of its proposal at a step, sent or not; empty if it made none.

        is_taught: whether another drafter that shares its estimates made a proposal.
        """
        if not draft.tokens and self.in_turn is not None:  # whose estimates fade by themselves
            self._recover()
        elif not draft.tokens and not is_taught:
            self.estimates.acceptance.decay_bias()
        sent = step.passed > 1 and step.drafter == draft.drafter
        if sent:
            self._teach_lines(draft, step)
        if not draft.is_tree:
            learn_line(self.estimates, draft, step, sent=sent, is_costly=self.cost is not None)
        elif sent:
            if self.planned is not None and step.drafted:
                estimates = self.estimates
                rank_acceptance.learn(estimates.acceptance, estimates.bucket, draft, step)
            learn_tree(self.estimates, step)

    def _recover(self) -> None:
        """Let what was learned of drafting ahead fade at a step without it."""
        if self.slowdown is not None:
            self.slowdown.recover()
        if isinstance(self.cost, OverlapCost):
            self.cost.recover()

    def _teach_lines(self, draft: Draft, step: Step) -> None:
        """Let the drafter of lines learn from the line equivalent of this draft."""
        lines = self.shared_lines
        if lines is None:
            return
        line = as_line(draft, is_greedy=self.estimates.bucket == GREEDY)
        if line is not None:
            step = replace(step, accepted=kept_of(line, step))
            learn_line(lines.estimates, line, step, sent=True, is_costly=lines.cost is not None)
