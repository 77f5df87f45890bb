"""The exact rules, one for each form of a draft."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from decoding.draft import (
    HostLine,
    PointMassLine,
    PointMassTree,
    SampledLine,
    TreeWithoutReplacement,
)
from decoding.sampling.distribution import Distribution, uniform


class TargetRows(Protocol):
    """p_target after the history and the first i drafted tokens, for i from 0 to all of them."""

    def __getitem__(self, i: int, /) -> Distribution: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """Number of accepted tokens, and the model's own token after them."""

    accepted: int
    next_token: int


class TreeRows(Protocol):
    """p_target after the history and the drafted tokens on a path of nodes."""

    def __getitem__(self, path: Sequence[int], /) -> Distribution: ...


@dataclass(frozen=True, slots=True)
class TreeVerdict:
    """Accepted nodes from the root down, and the model's own token after them."""

    path: tuple[int, ...]
    next_token: int


# Speculative rejection sampling: a line verified token by token.
#
# Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; Chen et al. 2023 (arXiv 2302.01318).


def verify(target: TargetRows, line: HostLine, generator: np.random.Generator) -> Verdict:
    """Verify a line so that the emitted tokens have exactly the target's distribution.

    Accept x with probability min(1, p_target(x) / q_draft(x)). On the first rejection draw from
    the residual and stop; if all are accepted draw the bonus token from p_target. Rows past a
    rejection are never requested.

    For point masses the equivalent rule is to draw from p_target and accept what matches: each
    token then uses one uniform, as in plain decoding, and a seed gives the plain reply.
    """
    for position, token in enumerate(line.tokens):
        p_target = target[position]
        if isinstance(line, PointMassLine):
            drawn = p_target.draw(uniform(generator))
            if drawn != token:
                return Verdict(position, drawn)
            continue
        q_draft = line.distributions[position]
        q_of_token = q_draft.of(token)
        if not 0.0 < uniform(generator) * q_of_token <= p_target.of(token):
            return Verdict(position, residual(p_target, q_draft).draw(uniform(generator)))
    count = len(line.tokens)
    return Verdict(count, target[count].draw(uniform(generator)))


def residual(p_target: Distribution, q_draft: Distribution) -> Distribution:
    """normalise(max(p_target - q_draft, 0)) with exact zeros; p_target if that is 0 everywhere."""
    return scaled_residual(p_target, q_draft, 1.0)[0]


def scaled_residual(
    p_target: Distribution, q_draft: Distribution, share: float
) -> tuple[Distribution, float]:
    """max(share p_target - q_draft, 0), normalised, and its sum; p_target if the sum is 0."""
    left = np.maximum(share * p_target.probabilities - q_draft.at(p_target.ids), 0.0)
    total = float(left.sum())
    return (Distribution(p_target.ids, left / total), total) if total > 0.0 else (p_target, 0.0)


# Block verification: a sampled line verified as a whole.
#
# Sun et al. 2025 (arXiv 2403.10444). It accepts at least as many tokens as token by token.


def verify_block(target: TargetRows, line: SampledLine, generator: np.random.Generator) -> Verdict:
    """Verify a sampled line so that the emitted tokens have exactly the target's distribution.

    share[i] is the joint ratio p_target / q_draft of the first i tokens, capped at 1 after each.
    Where S is the sum of max(share[i] p_target - q_draft, 0) over the possible next tokens, the
    first i are accepted with probability S / (S + 1 - share[i]); all of them with the last share.
    Each prefix has a uniform of its own, and the longest that passes is accepted, whether or not
    shorter ones pass.

    Uses one uniform for each drafted token, then one for the token drawn. A certain token has a
    point mass. No row is requested after a token that p_target rules out.
    """
    uniforms = [uniform(generator) for _ in line.tokens]
    targets, shares = prefixes(target, line)
    for accepted in range(len(shares) - 1, 0, -1):
        rest, chance = ending(targets, shares, line, accepted)
        if uniforms[accepted - 1] <= chance:
            return Verdict(accepted, rest.draw(uniform(generator)))
    rest, _ = ending(targets, shares, line, 0)
    return Verdict(0, rest.draw(uniform(generator)))


def prefixes(target: TargetRows, line: SampledLine) -> tuple[list[Distribution], list[float]]:
    """p_target after each prefix of the line and its share, up to the longest possible prefix."""
    targets, shares = [target[0]], [1.0]
    for token, q_draft in zip(line.tokens, line.distributions, strict=True):
        share = next_share(shares[-1], targets[-1].of(token), q_draft.of(token))
        if share == 0.0:
            break
        targets.append(target[len(targets)])
        shares.append(share)
    return targets, shares


def ending(
    targets: Sequence[Distribution], shares: Sequence[float], line: SampledLine, accepted: int
) -> tuple[Distribution, float]:
    """What follows a prefix if no longer one is accepted, and the chance to accept the prefix."""
    if accepted == len(line.tokens):
        return targets[accepted], shares[accepted]
    rest, left = scaled_residual(targets[accepted], line.distributions[accepted], shares[accepted])
    return rest, acceptance(left, shares[accepted])


def next_share(share: float, p_of_token: float, q_of_token: float) -> float:
    """min(1, share p_target / q_draft) of a token; 0 for one that q_draft rules out."""
    return min(1.0, share * p_of_token / q_of_token) if q_of_token > 0.0 else 0.0


def acceptance(left: float, share: float) -> float:
    """The chance left / (left + 1 - share) to accept a prefix whose continuations all failed.

    left: sum of the scaled residual after the prefix. 1 if share is 1 and nothing is left.
    """
    return left / (left + (1.0 - share)) if left > 0.0 or share < 1.0 else 1.0


def verify_point_mass_tree(
    target: TreeRows, tree: PointMassTree, generator: np.random.Generator
) -> TreeVerdict:
    """Verify a tree of point masses so that the emitted tokens have the target's distribution.

    At each node a token is drawn from p_target; the child that matches it is accepted, and without
    one the token ends the step. Every emitted token was drawn from p_target after those before it,
    so that the rule is exact and a seed gives the plain reply.
    """
    drafted = len(tree.tokens) - tree.window_tokens
    children = {(tree.parents[node], tree.tokens[node]): node for node in range(drafted)}
    path: list[int] = []
    while True:
        drawn = target[path].draw(uniform(generator))
        child = children.get((path[-1] if path else -1, drawn))
        if child is None:
            return TreeVerdict(tuple(path), drawn)
        path.append(child)


# Traversal verification: a sampled tree verified from its leaves up.
#
# Weng et al. 2025 (arXiv 2505.12398). It accepts at least as many tokens as from the root down. A
# node whose child was rejected is accepted as block verification accepts the prefix of a line.


def verify_traversal(
    target: TreeRows, tree: TreeWithoutReplacement, generator: np.random.Generator
) -> TreeVerdict:
    """Verify a sampled tree so that the emitted tokens have exactly the target's distribution.

    A leaf is accepted with its share, the joint ratio p_target / q_draft of the tokens down to it,
    capped at 1 after each. A rejected child leaves its parent with the residual of p_target and
    q_draft, and a share to match; the next child is judged by these, and after the last one the
    parent is a leaf itself. No row is requested below a token that p_target rules out.
    """
    verdict = _Traversal(target, tree, children(tree), generator).verdict((), 1.0)
    assert verdict is not None, "the end of the history is always accepted"
    return verdict


@dataclass(frozen=True, slots=True)
class _Traversal:
    target: TreeRows
    tree: TreeWithoutReplacement
    children: Sequence[Sequence[int]]
    generator: np.random.Generator

    def verdict(self, path: tuple[int, ...], share: float) -> TreeVerdict | None:
        """The longest accepted extension of a path of nodes; None if the path is rejected."""
        if share == 0.0:
            return None
        left = None
        for node, q_draft in drafted_from(self.tree, self.children[path[-1] if path else -1]):
            left = self.target[path] if left is None else left
            token = self.tree.tokens[node]
            of_child = next_share(share, left.of(token), q_draft.of(token))
            verdict = self.verdict((*path, node), of_child)
            if verdict is not None:
                return verdict
            left, total = scaled_residual(left, q_draft, share)
            share = acceptance(total, share)
        if uniform(self.generator) <= share:
            left = self.target[path] if left is None else left
            return TreeVerdict(path, left.draw(uniform(self.generator)))
        return None


def children(tree: TreeWithoutReplacement) -> list[list[int]]:
    """The children of each node in the order sampled; those of the root come last."""
    below: list[list[int]] = [[] for _ in range(len(tree.tokens) + 1)]
    for node, parent in enumerate(tree.parents):
        below[parent].append(node)
    return below


def drafted_from(
    tree: TreeWithoutReplacement, siblings: Sequence[int]
) -> Iterator[tuple[int, Distribution]]:
    """Each sibling with its q_draft: the first one's without the tokens of those before it.

    Chen et al. 2024 (arXiv 2402.12374), Sequoia.
    """
    q_draft = tree.distributions[siblings[0]] if siblings else None
    for node in siblings:
        assert q_draft is not None, "more siblings than tokens to sample"
        yield node, q_draft
        q_draft = without(q_draft, tree.tokens[node])


def without(distribution: Distribution, token: int) -> Distribution | None:
    """The distribution given that it is not this token; None if no other token is possible."""
    others = distribution.ids != token
    left = distribution.probabilities[others]
    total = left.sum()
    return Distribution(distribution.ids[others], left / total) if total > 0.0 else None
