"""One pass of the target over a draft: run it, verify the draft, and roll the context back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

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
from decoding.joined_pass import forward, have_turn
from decoding.sampling.distribution import (
    Distribution,
    likeliest,
    next_uniforms,
    point_mass,
    skip_uniforms,
    uniform,
)
from decoding.sampling.sampler import NOTHING, Sampler, WarpedRows, WarpedTreeRows, logprobs
from decoding.sampling.settings import LossyRule
from decoding.verification.rules import (
    TargetRows,
    TreeRows,
    TreeVerdict,
    Verdict,
    residual,
    verify,
    verify_block,
    verify_point_mass_tree,
    verify_traversal,
)

# Opt-in rules that accept more drafted tokens and give up the model's exact distribution.
#
# p and q are p_target and q_draft after the same tokens, x is the drafted token. No rule accepts
# a token for which p is 0, such as one excluded by top-k. So at temperature 0, where p is a point
# mass on the likeliest token, each of them gives plain decoding's reply.


def verify_lossy(
    target: TargetRows, line: HostLine, rule: LossyRule, generator: np.random.Generator
) -> Verdict:
    """Verify a line by rejection sampling with a lossy acceptance probability.

    Point masses are treated like sampled tokens, and use two uniforms each. Rows past a rejection
    are never requested.
    """
    for position, token in enumerate(line.tokens):
        p_target = target[position]
        is_certain = isinstance(line, PointMassLine)
        q_draft = point_mass(token) if is_certain else line.distributions[position]
        accept, rest = judgement(rule, p_target, q_draft, token)
        if not uniform(generator) <= accept:
            return Verdict(position, rest().draw(uniform(generator)))
    count = len(line.tokens)
    return Verdict(count, target[count].draw(uniform(generator)))


Judgement = tuple[float, Callable[[], Distribution]]
"""The probability to accept a token, capped by the caller, and what replaces a rejected one."""


def judgement(
    rule: LossyRule, p_target: Distribution, q_draft: Distribution, token: int
) -> Judgement:
    return _JUDGES[rule.name](p_target, q_draft, token, rule.strength)


def _ears(p_target: Distribution, q_draft: Distribution, token: int, strength: float) -> Judgement:
    """min(1, p/q + strength * (1 - max p)): more is accepted where the model is less certain.

    EARS (arXiv 2512.13194); the residual is that of the exact rule.
    """
    p_of_token = p_target.of(token)
    uncertainty = 1.0 - float(p_target.probabilities.max())
    accept = p_of_token / q_draft.of(token) + strength * uncertainty
    return accept if p_of_token > 0.0 else 0.0, lambda: residual(p_target, q_draft)


def _lenient(
    p_target: Distribution, q_draft: Distribution, token: int, strength: float
) -> Judgement:
    """min(1, strength * p/q), with the residual of the exact rule.

    Leviathan et al. 2023 (arXiv 2211.17192), appendix A.5, where 1/strength is the lenience.
    """
    accept = strength * p_target.of(token) / q_draft.of(token)
    return accept, lambda: residual(p_target, q_draft)


def _typical(
    p_target: Distribution, _q_draft: Distribution, token: int, strength: float
) -> Judgement:
    """Accept where p > min(strength, sqrt(strength) * exp(-H(p))), whatever q_draft is.

    Medusa (arXiv 2401.10774), section 2.3.1, with its choice of delta as the root of epsilon; H in
    nats. A rejected token is replaced by one drawn from p among those that would be accepted.
    """
    p = p_target.probabilities
    entropy = -float((p * np.log(p, where=p > 0.0, out=np.zeros_like(p))).sum())
    threshold = min(strength, strength**0.5 * np.exp(-entropy))
    return float(p_target.of(token) > threshold), lambda: _above(p_target, threshold)


def _above(p_target: Distribution, threshold: float) -> Distribution:
    p = p_target.probabilities
    kept = p > min(threshold, np.nextafter(p.max(), 0.0))
    return Distribution(p_target.ids[kept], p[kept] / p[kept].sum())


_JUDGES: Mapping[str, Callable[[Distribution, Distribution, int, float], Judgement]] = (
    MappingProxyType({"typical": _typical, "ears": _ears, "lenient": _lenient})
)


Clock = Callable[[], float]


@dataclass(slots=True)  # freezing takes three quarters of the time to make one, each token
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


def keeps_rows(context: Context) -> bool:
    """Whether the model is elsewhere, and draws and verifies there alone."""
    return context.device_sampling is not None and context.device_sampling.keeps_rows


def judge(
    context: Context,
    history: Sequence[int],
    draft: Draft,
    sampler: Sampler,
    clock: Clock,
    top_logprobs: int | None = None,
) -> Judged:
    """Run the target over the last token of history and a draft, and verify it; settle follows.

    top_logprobs: how many of the likeliest tokens get a log probability at each position, beside
    the token itself; None for no log probabilities.

    Raises:
        ModelError: the engine failed.
    """
    form, device = draft.form, context.device_sampling
    if device is not None and device.keeps_rows:
        # Whatever a token was drawn from, it is exact to let the model draw its own, and compare.
        form = PointMassLine(form.tokens)
        draft = replace(draft, form=form)
    if device is not None and isinstance(form, PointMassLine | DeviceLine):
        warping = sampler.warping if top_logprobs is None and not draft.padding else None
        if warping is not None and sampler.settings.lossy_in_effect is None:
            return _judged_on_device(history, draft, form, sampler, device, warping, clock)
    count = len(form.tokens)
    tokens = [history[-1], *form.tokens, *[history[-1]] * draft.padding]
    if not count:
        rows = forward(context, tokens, len(tokens))
        at = clock()
        token = drawn(rows[0], sampler, history)
        return Judged((), token, at, logprobs=logprobs(rows, (0,), (token,), top_logprobs))
    if isinstance(form, Tree):
        parents = [-1, *(1 + parent for parent in form.parents)]
        parents += range(count, count + draft.padding)  # below the last node: no further leaf
        have_turn(context)
        rows = context.forward_tree(tokens, parents)[: 1 + count]
    else:
        rows = forward(context, tokens, len(tokens))[: 1 + count]
    at = clock()
    if draft.listener is not None:
        draft.listener(rows.argmax(axis=1))
    if isinstance(form, Tree):
        return _judged_tree(rows, at, history, draft, form, sampler, top_logprobs)
    line, lossy = on_host(form), sampler.settings.lossy_in_effect
    target = WarpedRows(rows, sampler, history, line.tokens)
    verdict = verify_line(target, line, sampler.verification, lossy)
    emitted = _emitted(rows, sampler, history, line.tokens[: verdict.accepted], verdict.next_token)
    accepted, next_token = emitted
    told = logprobs(rows, range(1 + len(accepted)), (*accepted, next_token), top_logprobs)
    rule = draft.rule if lossy is None else Rule.LOSSY
    return Judged(accepted, next_token, at, rule=rule, logprobs=told)


def _judged_tree(
    rows: Logits,
    at: float,
    history: Sequence[int],
    draft: Draft,
    tree: Tree,
    sampler: Sampler,
    top_logprobs: int | None,
) -> Judged:
    """rows: after the last token, which is above the tree, and after each node."""
    target = WarpedTreeRows(rows, sampler, history, tree.tokens)
    verdict = verify_tree(target, tree, sampler.verification)
    accepted = tuple(tree.tokens[node] for node in verdict.path)
    accepted, next_token = _emitted(rows, sampler, history, accepted, verdict.next_token)
    path = verdict.path[: len(accepted)]
    branch = len(path) + height(tree.parents[: draft.drafted], path[-1] if path else -1)
    places = (0, *(1 + node for node in path))
    told = logprobs(rows, places, (*accepted, next_token), top_logprobs)
    return Judged(accepted, next_token, at, path, branch, draft.rule, logprobs=told)


def _judged_on_device(
    history: Sequence[int],
    draft: Draft,
    line: PointMassLine | DeviceLine,
    sampler: Sampler,
    device: DeviceSampling,
    warping: Warping,
    clock: Clock,
) -> Judged:
    """Verify where the logits are, and the rows of the draft if it was sampled.

    The generator gives the same numbers for the same purposes as on the host, so that a seed
    gives the same reply: all of them for a sampled line, those of the emitted tokens for point
    masses.
    """
    generator = sampler.verification
    uniforms = next_uniforms(generator, 1 + len(line.tokens))
    rows = line.rows if isinstance(line, DeviceLine) else None
    accepted, next_token = device.verify(
        [history[-1]], line.tokens, rows, warping, uniforms, draft.listener
    )
    skip_uniforms(generator, accepted + 1 if rows is None else len(uniforms))
    return Judged(line.tokens[:accepted], next_token, clock(), rule=draft.rule, on_device=True)


def _emitted(
    rows: Logits,
    sampler: Sampler,
    history: Sequence[int],
    accepted: tuple[int, ...],
    next_token: int,
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
    return (), drawn(rows[0], sampler, history)


def drawn(row: NDArray[np.float32], sampler: Sampler, history: Sequence[int]) -> int:
    """The model's own token after history, as every rule draws it if nothing was drafted."""
    if sampler.settings.temperature == 0.0:  # a number would decide nothing, and takes time
        return likeliest(sampler.adjusted(row, history))
    return sampler.distribution(row, history).draw(uniform(sampler.verification))


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
        return drafted <= min(context.max_rollback, context.n_ctx - length)
    if count_leaves(draft.form.parents) > context.max_branches:
        return False
    return drafted < min(context.n_chunk, context.max_logits, context.n_ctx - length + 1)
