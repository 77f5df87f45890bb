"""A drafter under the controller: guarded, with its cost and its estimated acceptance."""

from collections.abc import Callable, Iterator, Sequence
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
    with_confidence,
)
from decoding.drafters.trees import PlannedDrafter, TreeShape
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
from decoding.events import Step
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import LossyRule, SamplingSettings


def learn_line(
    estimates: AcceptanceEstimates, draft: Draft, step: Step, *, sent: bool, is_costly: bool
) -> None:
    """Learn from the tokens of a line, up to the first rejected one.

    A certain token is judged against the model's own, sent or not; a sampled one only if it was
    sent. is_costly: whether to count positions too, as for a drafter that drafts token by token.
    """
    for position, token in enumerate(draft.tokens):
        if not draft.is_sampled:
            if position == len(step.tokens):
                return
            accepted = token == step.tokens[position]
        elif not sent or (position == step.accepted == len(step.tokens)):
            return
        else:
            accepted = position < step.accepted
        if is_costly:
            estimates.add_position(position, accepted=accepted)
        estimates.add_token(draft.evidence[position], draft.confidence[position], accepted=accepted)
        estimates.add_judged(accepted=accepted)
        if not accepted:
            return


def learn_tree(estimates: AcceptanceEstimates, step: Step) -> None:
    """Learn from the levels of a tree that was sent, down to the first without an accepted node."""
    if not step.drafted:  # window tokens alone
        estimates.add_silence()
        return
    for position in range(min(len(step.tokens), step.accepted + 1, max(step.longest, 1))):
        accepted = position < step.accepted
        estimates.add_position(position, accepted=accepted)
        estimates.add_judged(accepted=accepted)


# Line equivalent of a tree: the first branch, which the drafter would have proposed as a line.
#
# Given its tokens, block verification accepts the first n of a line, and traversal verification the
# first n nodes of a tree's first branch, with the same probability: their share (Sun et al. 2025,
# arXiv 2403.10444; Weng et al. 2025, arXiv 2505.12398). Further children of a node only use the
# part of its share that would have been left to the node itself. So the outcome of the first branch
# updates the estimates of lines, without drafting a line.


def as_line(draft: Draft, *, is_greedy: bool) -> Draft | None:
    """The line equivalent of a tree; None if lines of its drafter are distributed otherwise.

    is_greedy: at temperature 0, where a line consists of the likeliest children. Above it, one
    consists of the first children sampled without replacement; likeliest children are not sampled.
    """
    tree = draft.form
    assert isinstance(tree, Tree)
    nodes = _first_branch(tree.parents[: draft.drafted])
    tokens = tuple(tree.tokens[node] for node in nodes)
    if isinstance(tree, TreeWithoutReplacement):
        line = SampledLine(tokens, tuple(tree.distributions[node] for node in nodes))
        confidence = [draft.confidence[node] for node in nodes]
    elif is_greedy:
        line, confidence = PointMassLine(tokens), [1.0] * len(nodes)
    else:
        return None
    return with_confidence(line, draft.drafter, confidence)


def kept_of(line: Draft, step: Step) -> int:
    """Number of a line's tokens that were accepted as part of the drafted tree."""
    kept = 0
    for token, accepted in zip(line.tokens, step.tokens[: step.accepted], strict=False):
        if token != accepted:
            break
        kept += 1
    return kept


def _first_branch(parents: tuple[int, ...]) -> list[int]:
    """Nodes from the root down, each the first child of the one before."""
    nodes: list[int] = []
    for node, parent in enumerate(parents):
        if parent == (nodes[-1] if nodes else -1):
            nodes.append(node)
    return nodes


_FURTHER = (0.375, 0.24, 0.16)
"""Prior probability that the second child is accepted if the first is not, and so on. A guess
close to the measured 0.36, 0.20 and 0.21 (docs/reference/measurements.md, Trees and paths)."""

_RANKS = 1 + len(_FURTHER)


def of_first(acceptance: Acceptance, bucket: str, prior: float) -> float:
    """Probability that the first child is accepted, given that its parent is."""
    return acceptance.mean(f"{bucket}:rank0", prior)


def by_rank(acceptance: Acceptance, bucket: str, first: float) -> list[float]:
    """Probability that the child of each rank is accepted, given that its parent is.

    first: probability of the first child. The sum is at most 1.
    """
    ranks = [first]
    for rank, share in enumerate(_FURTHER, start=1):
        left = max(1.0 - sum(ranks), 0.0)
        ranks.append(min(acceptance.mean(f"{bucket}:rank{rank}", left * share), left))
    return ranks


def learn(acceptance: Acceptance, bucket: str, draft: Draft, step: Step) -> None:
    """Count which child was accepted, if any, at the root and at each accepted node.

    draft: the tree that the step verified.
    """
    assert isinstance(draft.form, Tree)
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(draft.form.parents[: draft.drafted]):
        children.setdefault(parent, []).append(node)
    node = -1
    for position in range(min(step.accepted + 1, len(step.tokens))):
        ranks = children.get(node, [])[:_RANKS]
        kept = step.tokens[position] if position < step.accepted else None
        for rank, child in enumerate(ranks):
            acceptance.add(f"{bucket}:rank{rank}", draft.tokens[child] == kept)
        node = _child(draft.tokens, children.get(node, []), kept)
        if node < 0:
            return


def _child(tokens: Sequence[int], children: Sequence[int], kept: int | None) -> int:
    """The child with the kept token, -1 for none."""
    return next((child for child in children if tokens[child] == kept), -1)


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
        self.guarded(lambda: self.drafter.commit(history), None)

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
            first = of_first(acceptance, bucket, estimates.mean_at_any_position)
        return by_rank(acceptance, bucket, first)

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
                learn(estimates.acceptance, estimates.bucket, draft, step)
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
