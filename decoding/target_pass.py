"""One pass of the target over a draft: run it, verify the draft, and roll the context back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.base import Context, DeviceSampling, Logits, Warping
from backends.base.parent_array import count_leaves, height
from decoding.draft import Draft
from decoding.forms import (
    DeviceLine,
    HostLine,
    Line,
    PointMassLine,
    PointMassTree,
    SampledLine,
    Tree,
    TreeWithoutReplacement,
    on_host,
)
from decoding.lossy_rule import LossyRule
from decoding.rule import Rule
from decoding.sampler import Sampler
from decoding.sampling import next_uniforms, skip_uniforms, uniform
from decoding.verification.block import verify_block
from decoding.verification.lossy import verify_lossy
from decoding.verification.point_mass_tree import verify_point_mass_tree
from decoding.verification.rejection_sampling import verify
from decoding.verification.traversal import verify_traversal
from decoding.verification.verdict import TargetRows, TreeRows, TreeVerdict, Verdict
from decoding.warped_rows import WarpedRows, WarpedTreeRows

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Judged:
    """The accepted tokens of a draft, and the model's own token after them.

    at: clock reading at the end of the target's forward pass. path: the accepted nodes of a tree;
    None for a line. branch, rule, on_device: as in decoding.events.Step.
    """

    accepted: tuple[int, ...]
    next_token: int
    at: float
    path: tuple[int, ...] | None = None
    branch: int | None = None
    rule: Rule = Rule.NONE
    on_device: bool = False


def judge(
    context: Context, history: Sequence[int], draft: Draft, sampler: Sampler, clock: Clock
) -> Judged:
    """Run the target over the last token of history and a draft, and verify it; settle follows.

    Raises:
        ModelError: the engine failed.
    """
    form = draft.form
    if isinstance(form, Tree):
        return _judge_tree(context, history, draft, form, sampler, clock)
    lossy = sampler.settings.lossy_in_effect
    device, warping = context.device_sampling, sampler.warping
    if device and warping and lossy is None and isinstance(form, PointMassLine | DeviceLine):
        return _judge_on_device(device, warping, history[-1], draft, form, sampler, clock)
    return _judge_line(context, history, draft, form, sampler, clock)


def _judge_line(
    context: Context,
    history: Sequence[int],
    draft: Draft,
    line: Line,
    sampler: Sampler,
    clock: Clock,
) -> Judged:
    lossy = sampler.settings.lossy_in_effect
    line = on_host(line)
    rows = context.forward([history[-1], *line.tokens], 1 + len(line.tokens))
    at = clock()
    _notify(draft, rows)
    if not line.tokens:
        return Judged((), drawn(rows[0], sampler, history), at)
    target = WarpedRows(rows, sampler, history, line.tokens)
    verdict = verify_line(target, line, sampler.verification, lossy)
    accepted = line.tokens[: verdict.accepted]
    rule = draft.rule if lossy is None else Rule.LOSSY
    return Judged(accepted, verdict.next_token, at, rule=rule)


def _judge_on_device(
    device: DeviceSampling,
    warping: Warping,
    last: int,
    draft: Draft,
    line: PointMassLine | DeviceLine,
    sampler: Sampler,
    clock: Clock,
) -> Judged:
    """A pass whose logits, and the rows of the draft if it was sampled, stay on the device.

    The generator gives the same numbers for the same purposes as on the host, so that a seed gives
    the same reply: all of them for a sampled line, those of the emitted tokens for point masses.
    """
    uniforms = next_uniforms(sampler.verification, 1 + len(line.tokens))
    rows = line.rows if isinstance(line, DeviceLine) else None
    accepted, next_token = device.verify(
        [last], line.tokens, rows, warping, uniforms, draft.listener
    )
    skip_uniforms(sampler.verification, accepted + 1 if rows is None else len(uniforms))
    at = clock()
    return Judged(line.tokens[:accepted], next_token, at, rule=draft.rule, on_device=True)


def drawn(row: NDArray[np.float32], sampler: Sampler, history: Sequence[int]) -> int:
    """The model's own token after history, as every rule draws it if nothing was drafted."""
    p_target = sampler.distribution(row, history)
    if sampler.settings.temperature == 0.0:  # no number decides anything then, and each takes time
        return int(p_target.ids[0])
    return p_target.draw(uniform(sampler.verification))


def _judge_tree(
    context: Context,
    history: Sequence[int],
    draft: Draft,
    tree: Tree,
    sampler: Sampler,
    clock: Clock,
) -> Judged:
    """A pass over a tree below the last token, which is node 0 of the pass."""
    parents = [-1, *(1 + parent for parent in tree.parents)]
    rows = context.forward_tree([history[-1], *tree.tokens], parents)
    at = clock()
    _notify(draft, rows)
    target = WarpedTreeRows(rows, sampler, history, tree.tokens)
    verdict = verify_tree(target, tree, sampler.verification)
    path = verdict.path
    branch = len(path) + height(tree.parents[: draft.drafted], path[-1] if path else -1)
    accepted = tuple(tree.tokens[node] for node in path)
    return Judged(accepted, verdict.next_token, at, path, branch, draft.rule)


def verify_line(
    target: TargetRows,
    line: HostLine,
    generator: np.random.Generator,
    lossy: LossyRule | None = None,
) -> Verdict:
    """Verify a line by the rule of its form, or by a lossy rule.

    Point masses gain nothing as a block; token by token a seed gives the plain reply.
    """
    if lossy is not None:
        return verify_lossy(target, line, lossy, generator)
    match line:
        case SampledLine():
            return verify_block(target, line, generator)
        case PointMassLine():
            return verify(target, line, generator)


def verify_tree(target: TreeRows, tree: Tree, generator: np.random.Generator) -> TreeVerdict:
    """Verify a tree by the rule of its form."""
    match tree:
        case PointMassTree():
            return verify_point_mass_tree(target, tree, generator)
        case TreeWithoutReplacement():
            return verify_traversal(target, tree, generator)


def settle(context: Context, length: int, judged: Judged, accepted: int) -> None:
    """Keep only a history of length tokens and the first accepted drafted tokens in the context."""
    if judged.path is None:
        context.truncate(length + accepted)
    else:
        context.commit([0, *(1 + node for node in judged.path[:accepted])])


def fits(context: Context, length: int, draft: Draft) -> bool:
    """Whether a tree can be run after a history of length tokens; lines are limited beforehand."""
    if not isinstance(draft.form, Tree):
        return True
    if count_leaves(draft.form.parents) > context.max_branches:
        return False
    return len(draft) < min(context.n_chunk, context.max_logits, context.n_ctx - length + 1)


def _notify(draft: Draft, rows: Logits) -> None:
    if draft.listener is not None:
        draft.listener(rows.argmax(axis=1))
