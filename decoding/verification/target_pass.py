"""One pass of the target over a draft: run it, verify the draft, and roll the context back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.base import Context, DeviceSampling, Logits, Warping
from backends.base.parent_array import count_leaves, height
from decoding.draft import (
    DeviceLine,
    Draft,
    HostLine,
    PointMassLine,
    PointMassTree,
    SampledLine,
    Tree,
    TreeWithoutReplacement,
    on_host,
)
from decoding.events import Rule, TokenLogprob
from decoding.sampling.distribution import next_uniforms, skip_uniforms, uniform
from decoding.sampling.sampler import NOTHING, Sampler, WarpedRows, WarpedTreeRows, logprobs
from decoding.sampling.settings import LossyRule
from decoding.verification.lossy import verify_lossy
from decoding.verification.rules import (
    TargetRows,
    TreeRows,
    TreeVerdict,
    Verdict,
    verify,
    verify_block,
    verify_point_mass_tree,
    verify_traversal,
)

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Judged:
    """The accepted tokens of a draft, and the model's own token after them.

    at: clock reading at the end of the target's forward pass. path: the accepted nodes of a tree;
    None for a line. branch, rule, on_device, logprobs: as in decoding.events.Step, logprobs also of
    what comes after a token that ends the reply.
    """

    accepted: tuple[int, ...]
    next_token: int
    at: float
    path: tuple[int, ...] | None = None
    branch: int | None = None
    rule: Rule = Rule.NONE
    on_device: bool = False
    logprobs: tuple[TokenLogprob, ...] = ()


def judge(
    context: Context,
    history: Sequence[int],
    draft: Draft,
    sampler: Sampler,
    clock: Clock,
    top_logprobs: int | None = None,
) -> Judged:
    """Run the target over the last token of history and a draft, and verify it; settle follows.

    top_logprobs: of how many of the likeliest tokens log probabilities are wanted beside that of
    each token; None if none are.

    Raises:
        ModelError: the engine failed.
    """
    target_pass = _Pass(context, history, draft, sampler, clock, top_logprobs)
    form = draft.form
    if isinstance(form, Tree):
        return target_pass.judge_tree(form)
    device, warping = context.device_sampling, sampler.warping
    stays_there = sampler.settings.lossy_in_effect is None and top_logprobs is None
    stays_there = stays_there and not draft.padding
    if device and warping and stays_there and isinstance(form, PointMassLine | DeviceLine):
        return target_pass.judge_on_device(form, device, warping)
    return target_pass.judge_line(on_host(form))


@dataclass(frozen=True, slots=True)
class _Pass:
    context: Context
    history: Sequence[int]
    draft: Draft
    sampler: Sampler
    clock: Clock
    top_logprobs: int | None

    def judge_line(self, line: HostLine) -> Judged:
        count, fill = len(line.tokens), self._fill
        rows = self.context.forward([self.history[-1], *line.tokens, *fill], 1 + count + len(fill))
        rows = rows[: 1 + count]
        at = self.clock()
        self._notify(rows)
        if not count:
            token = drawn(rows[0], self.sampler, self.history)
            return Judged((), token, at, logprobs=self._logprobs(rows, (), (token,)))
        target = WarpedRows(rows, self.sampler, self.history, line.tokens)
        lossy = self.sampler.settings.lossy_in_effect
        verdict = verify_line(target, line, self.sampler.verification, lossy)
        accepted = line.tokens[: verdict.accepted]
        accepted, next_token = self._emitted(rows, accepted, verdict.next_token)
        rule = self.draft.rule if lossy is None else Rule.LOSSY
        told = self._logprobs(rows, range(len(accepted)), (*accepted, next_token))
        return Judged(accepted, next_token, at, rule=rule, logprobs=told)

    def judge_on_device(
        self, line: PointMassLine | DeviceLine, device: DeviceSampling, warping: Warping
    ) -> Judged:
        """Verify where the logits are, and the rows of the draft if it was sampled.

        The generator gives the same numbers for the same purposes as on the host, so that a seed
        gives the same reply: all of them for a sampled line, those of the emitted tokens for point
        masses.
        """
        generator = self.sampler.verification
        uniforms = next_uniforms(generator, 1 + len(line.tokens))
        rows = line.rows if isinstance(line, DeviceLine) else None
        accepted, next_token = device.verify(
            [self.history[-1]], line.tokens, rows, warping, uniforms, self.draft.listener
        )
        skip_uniforms(generator, accepted + 1 if rows is None else len(uniforms))
        at, rule = self.clock(), self.draft.rule
        return Judged(line.tokens[:accepted], next_token, at, rule=rule, on_device=True)

    def judge_tree(self, tree: Tree) -> Judged:
        """Verify a tree below the last token, which is node 0 of the pass."""
        parents, fill = [-1, *(1 + parent for parent in tree.parents)], self._fill
        size = len(parents)
        parents += range(size - 1, size - 1 + len(fill))  # below the last node: no further leaf
        rows = self.context.forward_tree([self.history[-1], *tree.tokens, *fill], parents)[:size]
        at = self.clock()
        self._notify(rows)
        target = WarpedTreeRows(rows, self.sampler, self.history, tree.tokens)
        verdict = verify_tree(target, tree, self.sampler.verification)
        accepted = tuple(tree.tokens[node] for node in verdict.path)
        accepted, next_token = self._emitted(rows, accepted, verdict.next_token)
        path = verdict.path[: len(accepted)]
        below = height(tree.parents[: self.draft.drafted], path[-1] if path else -1)
        branch = len(path) + below
        told = self._logprobs(rows, path, (*accepted, next_token))
        rule = self.draft.rule
        return Judged(accepted, next_token, at, path, branch, rule, logprobs=told)

    def _emitted(
        self, rows: Logits, accepted: tuple[int, ...], next_token: int
    ) -> tuple[tuple[int, ...], int]:
        """The accepted tokens, and the model's own one after them.

        Where none can follow, the last accepted one counts as the model's own, so that the reply
        keeps all that plain decoding would have; it fails at the next step, as that does.

        Raises:
            ModelError: nothing can follow the history.
        """
        if next_token != NOTHING:
            return accepted, next_token
        if accepted:
            return accepted[:-1], accepted[-1]
        return (), drawn(rows[0], self.sampler, self.history)

    @property
    def _fill(self) -> list[int]:
        return [self.history[-1]] * self.draft.padding

    def _logprobs(
        self, rows: Logits, path: Sequence[int], tokens: Sequence[int]
    ) -> tuple[TokenLogprob, ...]:
        """Log probabilities of tokens, of which all but the last are drafted ones at path."""
        if self.top_logprobs is None:
            return ()
        return logprobs(rows, (0, *(1 + node for node in path)), tokens, self.top_logprobs)

    def _notify(self, rows: Logits) -> None:
        if self.draft.listener is not None:
            self.draft.listener(rows.argmax(axis=1))


def drawn(row: NDArray[np.float32], sampler: Sampler, history: Sequence[int]) -> int:
    """The model's own token after history, as every rule draws it if nothing was drafted."""
    p_target = sampler.distribution(row, history)
    if sampler.settings.temperature == 0.0:  # a number would decide nothing, and takes time
        return int(p_target.ids[0])
    return p_target.draw(uniform(sampler.verification))


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
    """Whether a draft can be run after a history of length tokens, and taken back if rejected."""
    drafted = len(draft) + draft.padding
    if not isinstance(draft.form, Tree):
        return drafted <= context.max_rollback
    if count_leaves(draft.form.parents) > context.max_branches:
        return False
    return drafted < min(context.n_chunk, context.max_logits, context.n_ctx - length + 1)
