"""A drafter under the controller: guarded, with its cost and its estimated acceptance."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from backends.base import Listener, PassStoppedError
from backends.base.parent_array import depths, is_tree
from decoding.draft import (
    NO_DRAFT,
    DeviceLine,
    Draft,
    Drafter,
    Form,
    KeepOn,
    PointMassLine,
    PointMassTree,
    SampledLine,
    Tree,
    TreeWithoutReplacement,
)
from decoding.drafters.trees import PlannedDrafter, TreeShape
from decoding.estimation import learning as rank_acceptance
from decoding.estimation.acceptance import GREEDY, POSITION_PRIOR, Acceptance, AcceptanceEstimates
from decoding.estimation.cost import (
    CostModel,
    DraftCost,
    DraftCosts,
    TreeCosts,
    TreePasses,
    TreeSize,
)
from decoding.estimation.draft_cost import LevelCost
from decoding.estimation.learning import as_line, kept_of, learn_line, learn_tree
from decoding.events import Step
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import LossyRule, SamplingSettings


def is_sound(draft: Draft, limit: int, n_vocab: int) -> bool:
    """Whether its parts have one length, no branch exceeds the limit, and all tokens exist."""
    return (
        len(draft.confidence) == len(draft.evidence) == len(draft)
        and _is_consistent(draft.form)
        and _depth(draft) <= limit
        and all(0 <= token < n_vocab for token in draft.tokens)
    )


def _is_consistent(form: Form) -> bool:
    count = len(form.tokens)
    match form:
        case PointMassLine():
            return True
        case SampledLine():
            return len(form.distributions) == count
        case DeviceLine():
            return len(form.rows) == count
        case PointMassTree():
            return len(form.parents) == count and is_tree(form.parents)
        case TreeWithoutReplacement():
            lengths = {len(form.parents), len(form.distributions)}
            return lengths == {count} and is_tree(form.parents)


def _depth(draft: Draft) -> int:
    if not isinstance(draft.form, Tree):
        return len(draft)
    return 1 + max(depths(draft.form.parents[: draft.drafted]), default=-1)


Result = TypeVar("Result")


class FaultGuard:
    """Forwards calls to a drafter until it fails or proposes nonsense.

    dropped: why it is no longer called, empty while it is. unable: why it cannot draft at present,
    as of the last check.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.dropped = ""
        self.unable = ""

    @property
    def name(self) -> str:
        return self.drafter.name

    def guarded(self, call: Callable[[], Result], otherwise: Result) -> Result:
        """The result of a call on the drafter; otherwise, if it raises, which drops it."""
        try:
            return call()
        except PassStoppedError:
            raise  # of the reply
        except Exception as error:  # a drafter must never end a reply
            self._failed(error)
            return otherwise

    def can_draft(self, history: Sequence[int]) -> bool:
        if self.dropped:
            return False
        self.unable = self.guarded(lambda: self.drafter.refusal(history), "")
        return not (self.unable or self.dropped)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        try:
            yield from self.drafter.read(history)
        except PassStoppedError:
            raise  # of the reply
        except Exception as error:
            self._failed(error)

    def read_ahead(self, history: Sequence[int], most: int) -> Iterator[int]:
        """Let the drafter read a history that no reply follows yet, at most so many tokens at once.

        Yields after each piece. The last token counts as read: it is read again in any case.
        """
        try:
            if self.drafter.refusal(history):
                return
            self.drafter.begin(history, Sampler(SamplingSettings()))
            left = len(history) + 1
            while 1 < (backlog := self.drafter.backlog(history)) < left:
                left = backlog
                yield from self.drafter.read(history[: len(history) - backlog + most])
        except PassStoppedError:
            raise  # not a fault: something else is more urgent
        except Exception as error:
            self._failed(error)

    def commit(self, history: Sequence[int]) -> None:
        try:
            self.drafter.commit(history)
        except PassStoppedError:
            raise  # of the reply
        except Exception as error:
            self._failed(error)

    def rest(self) -> None:
        self.guarded(self.drafter.rest, None)

    def propose(
        self, history: Sequence[int], limit: int, n_vocab: int, keep_on: KeepOn | None = None
    ) -> Draft:
        draft = self.guarded(lambda: self.drafter.propose(history, limit, keep_on), NO_DRAFT)
        if draft.tokens and not is_sound(draft, limit, n_vocab):
            self.drop("it proposed nonsense")
            return NO_DRAFT
        if draft.listener is not None:
            return replace(draft, listener=partial(self._on_verified, draft.listener))
        return draft

    def _on_verified(self, listener: Listener, likeliest: NDArray[np.int64]) -> None:
        self.guarded(lambda: listener(likeliest), None)

    def _failed(self, error: Exception) -> None:
        self.drop(f"it failed: {str(error) or type(error).__name__}".splitlines()[0])

    def drop(self, reason: str) -> None:
        self.dropped = reason
        with suppress(Exception):  # a reason is known already
            self.drafter.rest()


class ManagedDrafter(FaultGuard):
    """A guarded drafter with its cost, its estimated acceptance and the form of its drafts.

    cost: None for a free drafter. acceptance: counts learned in earlier sessions. tree: size of its
    drafts if these are trees, None for lines. prior: acceptance expected until it is known.
    planned: the drafter, if its trees can be planned. lines: the managed drafter of single lines of
    the same drafter model, which learns from this one's drafts as if it had drafted them.
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
    ) -> None:
        super().__init__(drafter)
        self.cost = cost
        self.planned = planned
        self.lines = lines
        self.estimates = AcceptanceEstimates(acceptance, prior)
        self.unsent = 0
        """Number of proposals in a row that were not worth sending."""
        self._tree = tree

    def anew(self, drafter: Drafter) -> "ManagedDrafter":
        """Another in its place, of which nothing is learned."""
        prior = self.estimates.prior
        new = ManagedDrafter(drafter, None, self.cost, self._tree, prior, self.planned)
        new.dropped = self.dropped
        return new

    def begin(self, temperature: float, rule: LossyRule | None = None) -> None:
        self.estimates.begin(temperature, rule)

    def costs(self, passes: CostModel) -> DraftCosts:
        """Cost of verifying its drafts, by number of tokens that may be accepted."""
        if self.planned is not None:  # a lower bound: the tree may be a single branch
            return TreePasses(passes)
        return TreeCosts(passes, self._tree) if self._tree else passes

    def plan(self, shape: TreeShape) -> None:
        """Draft trees of this shape from now on."""
        if self.planned is not None and isinstance(self.cost, LevelCost):
            self.planned.plan(shape)
            self.cost.plan(shape.widths)

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

    def learn(self, draft: Draft, step: Step) -> None:
        """Learn from the outcome of its proposal at a step, sent or not; empty if it made none."""
        if not draft.tokens:
            self.estimates.acceptance.decay_bias()
        sent = step.passed > 1 and step.drafter == draft.drafter
        if not draft.is_tree:
            learn_line(self.estimates, draft, step, sent=sent, is_costly=self.cost is not None)
        elif sent:
            self._teach_lines(draft, step)
            if self.planned is not None and step.drafted:
                estimates = self.estimates
                rank_acceptance.learn(estimates.acceptance, estimates.bucket, draft, step)
            learn_tree(self.estimates, step)

    def _teach_lines(self, draft: Draft, step: Step) -> None:
        """Let the drafter of lines learn from the line equivalent of this draft."""
        lines = self.shared_lines
        if lines is None:
            return
        line = as_line(draft, is_greedy=self.estimates.bucket == GREEDY)
        if line is not None:
            step = replace(step, accepted=kept_of(line, step))
            learn_line(lines.estimates, line, step, sent=True, is_costly=lines.cost is not None)
