"""Rules for drawn trees emit exactly the target's law: every outcome is enumerated.

Wrong variants of them, known from other programs, must fail the same enumeration.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from decoding.draft import SampledLine, TreeWithoutReplacement
from decoding.sampling.distribution import Distribution, point_mass
from decoding.verification.rules import (
    TreeRows,
    TreeVerdict,
    acceptance,
    children,
    drafted_from,
    next_share,
    residual,
    scaled_residual,
    verify_block,
    verify_traversal,
    without,
)
from tests.fixtures.drawn_trees import RowsAfter, Rule, from_the_top, step_of, target_of
from tests.fixtures.enumeration import DENSE, Path, Prefix, draw, random_rows, sampled, speculative
from tests.fixtures.one_step import accepted, distance_and_accepted

pytestmark = pytest.mark.usefixtures("symbolic")

CASES = 200
DEPTH = 2


multi_round = from_the_top(residual)


@cache
def measured(seed: int, rule: Rule, *, replaces: bool = False) -> tuple[float, float]:
    step = step_of(seed, rule, replaces=replaces)
    return distance_and_accepted(step, target_of(seed), DEPTH + 1)


def distance(seed: int, rule: Rule, *, replaces: bool = False) -> float:
    """Total variation between what a rule emits and the target's law."""
    return measured(seed, rule, replaces=replaces)[0]


@pytest.mark.slow
def test_drawn_trees_leave_the_law_of_the_target() -> None:
    assert max(distance(seed, verify_traversal) for seed in range(CASES)) < 1e-9


@pytest.mark.slow
def test_from_the_leaves_up_never_less_is_kept_than_from_the_top_down() -> None:
    up, down = (
        [measured(seed, rule)[1] for seed in range(CASES)]
        for rule in (verify_traversal, multi_round)
    )
    gains = np.array(up) - down
    assert gains.min() > -1e-12
    assert gains.mean() > 0.01


Update = Callable[[float, Distribution, Distribution], float]


def from_the_leaves(update: Update) -> Rule:
    """Traversal with the share of a node that update gives it when a child was not kept."""

    def rule(target: TreeRows, draft: TreeWithoutReplacement, path: Any) -> TreeVerdict:
        below = children(draft)

        def keeps(nodes: Prefix, share: float) -> TreeVerdict | None:
            left = target[nodes]
            for node, q_draft in drafted_from(draft, below[nodes[-1] if nodes else -1]):
                token = draft.tokens[node]
                of_child = next_share(share, left.of(token), q_draft.of(token))
                found = keeps((*nodes, node), of_child)
                if found is not None:
                    return found
                left, share = scaled_residual(left, q_draft, share)[0], update(share, left, q_draft)
            if not nodes or path.happens(share):
                return TreeVerdict(nodes, draw(left, path))
            return None

        found = keeps((), 1.0)
        assert found is not None
        return found

    return rule


def right_share(share: float, left: Distribution, q_draft: Distribution) -> float:
    return acceptance(scaled_residual(left, q_draft, share)[1], share)


def ratio_of_norms(share: float, left: Distribution, q_draft: Distribution) -> float:
    """min(1, norm_b / norm_s): what is left by the share, over what is left without it."""
    whole = scaled_residual(left, q_draft, 1.0)[1]
    return min(1.0, scaled_residual(left, q_draft, share)[1] / whole) if whole > 0.0 else 1.0


def not_renormalised(
    draft: TreeWithoutReplacement, siblings: Sequence[int]
) -> Iterator[tuple[int, Distribution]]:
    """Each with the q_draft of the first."""
    return ((node, draft.distributions[siblings[0]]) for node in siblings)


@pytest.mark.slow
@pytest.mark.parametrize("right", [multi_round, from_the_leaves(right_share)])
def test_control_right_variants_pass_the_same_enumeration(right: Rule) -> None:
    assert max(distance(seed, right) for seed in range(CASES)) < 1e-9


WRONG: dict[str, Rule] = {
    "q_draft is not renormalised": from_the_top(residual, not_renormalised),
    "siblings against the same p_target": from_the_top(lambda p, q: p),
    "a share that is the ratio of norms": from_the_leaves(ratio_of_norms),
    "a share that stays": from_the_leaves(lambda share, p, q: share),
}


@pytest.mark.parametrize("name", WRONG)
def test_control_wrong_rules_for_drawn_trees_are_found(name: str) -> None:
    assert max(distance(seed, WRONG[name]) for seed in range(20)) > 0.01


@pytest.mark.parametrize("rule", [multi_round, verify_traversal])
def test_control_siblings_drawn_with_replacement_are_found(rule: Rule) -> None:
    assert max(distance(seed, rule, replaces=True) for seed in range(20)) > 0.01


def test_a_tree_without_branches_is_judged_like_a_block() -> None:
    """The same tokens are kept, and nothing is asked for twice."""
    target, q_draft = random_rows(1, DENSE), random_rows(101, DENSE)

    def as_tree(prefix: Prefix, path: Path) -> Prefix:
        line = sampled(q_draft, 3)((), path)
        assert isinstance(line, SampledLine)
        draft = TreeWithoutReplacement(line.tokens, (-1, 0, 1), line.distributions)
        rows = RowsAfter(target, draft)
        path.is_ending = True
        verdict = verify_traversal(rows, draft, path)  # type: ignore[arg-type]
        assert len(rows.asked) == len(set(rows.asked))
        return (*(draft.tokens[node] for node in verdict.path), verdict.next_token)

    block = speculative(target, sampled(q_draft, 3), verify_block, spreads=True)
    assert accepted(as_tree) == pytest.approx(accepted(block), abs=1e-12)


def test_a_law_without_its_only_token_is_none() -> None:
    assert without(point_mass(2), 2) is None
    left = without(Distribution(np.arange(3), np.array([0.5, 0.2, 0.3])), 0)
    assert left is not None
    assert left.of(0) == 0.0
    assert left.of(2) == pytest.approx(0.6)
