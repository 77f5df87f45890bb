"""One pass of the target over a draft: run, judged, and settled in its context."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backends.base import Context, Logits
from backends.base.tree import count_leaves
from decoding.draft import Draft
from decoding.lossy_rule import LossyRule
from decoding.sampler import Sampler
from decoding.sampling import Distribution
from decoding.verification.lossy import verify_lossy
from decoding.verification.on_device import verify_on_device
from decoding.verification.sample_match import verify_tree
from decoding.verification.token_level import verify
from decoding.warped_rows import WarpedRows

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Judged:
    """The drafted tokens that stand, in order, and the model's own token after them.

    at: when the target had been run. path: of a tree, the nodes of those tokens; None for a line.
    branch: as decoding.events.Step has it.
    """

    accepted: tuple[int, ...]
    next_token: int
    at: float
    path: tuple[int, ...] | None = None
    branch: int | None = None


def judge(
    context: Context, history: Sequence[int], draft: Draft, sampler: Sampler, clock: Clock
) -> Judged:
    """Run the target over the last token of history and a draft, which settle has to follow.

    Raises:
        ModelError: the engine failed.
    """
    if draft.parents is not None:
        return _judge_tree(context, history, draft, draft.parents, sampler, clock)
    if (rule := sampler.settings.lossy_in_effect) is not None:
        return _judge_lossy(context, history, draft.brought_over(), rule, sampler, clock)
    device, warping = context.device_sampling, sampler.warping
    if device is not None and warping is not None and draft.distributions is None:
        verdict = verify_on_device(device, warping, history[-1], draft, sampler.verification)
        at = clock()
    else:
        draft = draft.brought_over()
        rows = context.forward([history[-1], *draft.tokens], 1 + len(draft))
        at = clock()
        _tell(draft, rows)
        laws = WarpedRows(rows, sampler, history, draft.tokens)
        verdict = verify(laws, draft, sampler.verification)
    return Judged(draft.tokens[: verdict.accepted], verdict.next_token, at)


def _judge_lossy(
    context: Context,
    history: Sequence[int],
    draft: Draft,
    rule: LossyRule,
    sampler: Sampler,
    clock: Clock,
) -> Judged:
    """No device knows these rules: a line whose q_draft is in this process's memory."""
    rows = context.forward([history[-1], *draft.tokens], 1 + len(draft))
    at = clock()
    _tell(draft, rows)
    laws = WarpedRows(rows, sampler, history, draft.tokens)
    verdict = verify_lossy(laws, draft, rule, sampler.verification)
    return Judged(draft.tokens[: verdict.accepted], verdict.next_token, at)


def _judge_tree(
    context: Context,
    history: Sequence[int],
    draft: Draft,
    parents: Sequence[int],
    sampler: Sampler,
    clock: Clock,
) -> Judged:
    """The last token is the root of all: node 0 of the pass, before those of the draft."""
    below_last = [-1, *(1 + parent for parent in parents)]
    rows = context.forward_tree([history[-1], *draft.tokens], below_last)
    at = clock()
    _tell(draft, rows)
    branches = Branches(rows, sampler, history, draft.tokens)
    verdict = verify_tree(branches, draft, sampler.verification)
    accepted = tuple(draft.tokens[node] for node in verdict.path)
    return Judged(accepted, verdict.next_token, at, verdict.path, verdict.longest)


def settle(context: Context, length: int, judged: Judged, accepted: int) -> None:
    """Let the context hold the length tokens of the history and the first accepted ones alone."""
    if judged.path is None:
        context.truncate(length + accepted)
    else:
        context.commit([0, *(1 + node for node in judged.path[:accepted])])


def fits(context: Context, length: int, draft: Draft) -> bool:
    """Whether a tree can be run after a history of length tokens; lines are kept to their room."""
    if draft.parents is None:
        return True
    if count_leaves(draft.parents) > context.max_branches:
        return False
    return len(draft) < min(context.n_chunk, context.max_logits, context.n_ctx - length + 1)


def _tell(draft: Draft, rows: Logits) -> None:
    if draft.listener is not None:
        draft.listener(rows.argmax(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """p_target in a tree, after a path of drafted nodes."""

    rows: Logits
    sampler: Sampler
    history: Sequence[int]
    drafted: Sequence[int]

    def __getitem__(self, path: Sequence[int]) -> Distribution:
        row = self.rows[1 + path[-1] if path else 0]
        return self.sampler.distribution(row, self.history, [self.drafted[node] for node in path])
