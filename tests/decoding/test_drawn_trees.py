"""Rules for drawn trees emit exactly the target's law: every outcome is enumerated.

Wrong variants of them, known from other programs, must fail the same enumeration.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from decoding.draft import Draft
from decoding.sampling import Distribution, point_mass
from decoding.shape import Siblings
from decoding.verification.block import next_share, passing, verify_block
from decoding.verification.multi_round import verify_multi_round
from decoding.verification.residual import residual, uncovered
from decoding.verification.siblings import children, drawn_from, without
from decoding.verification.traversal import verify_traversal
from decoding.verification.tree import TreeRows, TreeVerdict
from tests.fixtures.enumeration import (
    DENSE,
    N_VOCAB,
    SPARSE,
    Path,
    Prefix,
    Rows,
    Step,
    accepted,
    distance_and_accepted,
    draw,
    random_rows,
    sampled,
    speculative,
)

pytestmark = pytest.mark.usefixtures("symbolic")

CASES = 200
DEPTH = 2
Rule = Callable[[TreeRows, Draft, Any], TreeVerdict]
SHAPES = [(-1, -1), (-1, -1, 0), (-1, 0, 0), (-1, -1, 1), (-1, -1, -1), (-1, 0)] * 2
SHAPES += [(-1, -1, 0, 1)]
"""Parents of each node: of trees that are at most two deep."""


class RowsAfter:
    """p_target after the tokens of a path of nodes; remembers what was asked for."""

    def __init__(self, target: Rows, draft: Draft) -> None:
        self._target, self._draft = target, draft
        self.asked: list[Prefix] = []

    def __getitem__(self, path: Sequence[int], /) -> Distribution:
        self.asked.append(tuple(path))
        return self._target(tuple(self._draft.tokens[node] for node in path))


def law_after(seed: int) -> Callable[[Prefix, int], Distribution]:
    """What a child is drawn from: it may be certain, or have the target's own law."""
    target, other = target_of(seed), random_rows(seed + 1000, (DENSE, SPARSE)[seed % 2])

    def q_draft(prefix: Prefix, drafter: int) -> Distribution:
        kind = (5 * seed + sum(prefix) + drafter) % 9
        if kind == 0:
            return point_mass(seed % N_VOCAB)
        return target(prefix) if kind == 1 else other((*prefix, drafter))

    return q_draft


def target_of(seed: int) -> Rows:
    return random_rows(seed, (DENSE, DENSE, SPARSE)[seed % 3])


def random_tree(seed: int, siblings: Siblings, path: Path) -> Draft:
    """A tree of a fixed shape, in which a node has no child where nothing is left to draw."""
    q_draft = law_after(seed)
    is_alone = siblings is Siblings.INDEPENDENT
    tokens: list[int] = []
    parents: list[int] = []
    laws: list[Distribution] = []
    below: dict[int, list[int]] = {}
    places: list[int | None] = []
    for parent in SHAPES[seed % len(SHAPES)]:
        above = -1 if parent < 0 else places[parent]
        before = below.setdefault(-1 if above is None else above, [])
        prefix = () if above is None or above < 0 else (tokens[above],)
        whole = q_draft(prefix, len(before) if is_alone else 0)
        rest: Distribution | None = whole
        for node in before if not is_alone else ():
            rest = rest and without(rest, tokens[node])
        if above is None or rest is None:
            places.append(None)
            continue
        places.append(len(tokens))
        before.append(len(tokens))
        parents.append(above)
        laws.append(whole)
        tokens.append(draw(rest, path))
    count = len(tokens)
    return Draft(
        tuple(tokens),
        "tree",
        (0.5,) * count,
        tuple(laws),
        parents=tuple(parents),
        siblings=siblings,
    )


def step_of(seed: int, siblings: Siblings, rule: Rule) -> Step:
    def step(prefix: Prefix, path: Path) -> Prefix:
        draft = random_tree(seed, siblings, path)
        path.is_ending = True
        verdict = rule(RowsAfter(target_of(seed), draft), draft, path)
        return (*(draft.tokens[node] for node in verdict.path), verdict.next_token)

    return step


@cache
def measured(seed: int, siblings: Siblings, rule: Rule) -> tuple[float, float]:
    return distance_and_accepted(step_of(seed, siblings, rule), target_of(seed), DEPTH + 1)


def distance(seed: int, siblings: Siblings, rule: Rule) -> float:
    """Total variation between what a rule emits and the target's law."""
    return measured(seed, siblings, rule)[0]


@pytest.mark.parametrize("siblings", Siblings)
@pytest.mark.parametrize("rule", [verify_multi_round, verify_traversal])
def test_drawn_trees_leave_the_law_of_the_target(siblings: Siblings, rule: Rule) -> None:
    assert max(distance(seed, siblings, rule) for seed in range(CASES)) < 1e-9


@pytest.mark.parametrize("siblings", Siblings)
def test_from_the_leaves_up_never_less_is_kept_than_from_the_top_down(siblings: Siblings) -> None:
    up, down = (
        [measured(seed, siblings, rule)[1] for seed in range(CASES)]
        for rule in (verify_traversal, verify_multi_round)
    )
    gains = np.array(up) - down
    assert gains.min() > -1e-12
    assert gains.mean() > 0.01


Update = Callable[[float, Distribution, Distribution], float]
Laws = Callable[[Draft, Sequence[int]], Iterator[tuple[int, Distribution]]]


def from_the_top(rest: Callable[..., Distribution], laws: Laws) -> Rule:
    """Child after child, with what one leaves of p_target and with the law of the next."""

    def rule(target: TreeRows, draft: Draft, path: Any) -> TreeVerdict:
        below, nodes = children(draft), list[int]()
        while True:
            left = target[nodes]
            for node, q_draft in laws(draft, below[nodes[-1] if nodes else -1]):
                token = draft.tokens[node]
                if path.happens(next_share(1.0, left.of(token), q_draft.of(token))):
                    nodes.append(node)
                    break
                left = rest(left, q_draft)
            else:
                return TreeVerdict(tuple(nodes), draw(left, path), 0)

    return rule


def from_the_leaves(update: Update) -> Rule:
    """Traversal with the share of a node that update gives it when a child was not kept."""

    def rule(target: TreeRows, draft: Draft, path: Any) -> TreeVerdict:
        below = children(draft)

        def keeps(nodes: Prefix, share: float) -> TreeVerdict | None:
            left = target[nodes]
            for node, q_draft in drawn_from(draft, below[nodes[-1] if nodes else -1]):
                token = draft.tokens[node]
                of_child = next_share(share, left.of(token), q_draft.of(token))
                found = keeps((*nodes, node), of_child)
                if found is not None:
                    return found
                left, share = uncovered(left, q_draft, share)[0], update(share, left, q_draft)
            if not nodes or path.happens(share):
                return TreeVerdict(nodes, draw(left, path), 0)
            return None

        found = keeps((), 1.0)
        assert found is not None
        return found

    return rule


def right_share(share: float, left: Distribution, q_draft: Distribution) -> float:
    return passing(uncovered(left, q_draft, share)[1], share)


def ratio_of_norms(share: float, left: Distribution, q_draft: Distribution) -> float:
    """min(1, norm_b / norm_s): what is left by the share, over what is left without it."""
    whole = uncovered(left, q_draft, 1.0)[1]
    return min(1.0, uncovered(left, q_draft, share)[1] / whole) if whole > 0.0 else 1.0


def not_renormalised(draft: Draft, siblings: Sequence[int]) -> Iterator[tuple[int, Distribution]]:
    """Each with the q_draft of the first."""
    assert draft.distributions is not None
    return ((node, draft.distributions[siblings[0]]) for node in siblings)


REPLACED = Siblings.WITHOUT_REPLACEMENT
ALONE = Siblings.INDEPENDENT


@pytest.mark.parametrize("siblings", Siblings)
@pytest.mark.parametrize(
    "right", [from_the_top(residual, drawn_from), from_the_leaves(right_share)]
)
def test_control_right_variants_pass_the_same_enumeration(siblings: Siblings, right: Rule) -> None:
    assert max(distance(seed, siblings, right) for seed in range(20)) < 1e-9


WRONG: dict[str, tuple[Siblings, Rule]] = {
    "q_draft is not renormalised": (REPLACED, from_the_top(residual, not_renormalised)),
    "siblings against the same p_target": (ALONE, from_the_top(lambda p, q: p, drawn_from)),
    "drawn alone, judged as without replacement": (
        ALONE,
        from_the_top(residual, not_renormalised),
    ),
    "a share that is the ratio of norms": (REPLACED, from_the_leaves(ratio_of_norms)),
    "a share that stays": (ALONE, from_the_leaves(lambda share, p, q: share)),
}


@pytest.mark.parametrize("name", WRONG)
def test_control_wrong_rules_for_drawn_trees_are_found(name: str) -> None:
    siblings, wrong = WRONG[name]
    assert max(distance(seed, siblings, wrong) for seed in range(20)) > 0.01


def test_a_tree_without_branches_is_judged_like_a_block() -> None:
    """The same tokens are kept, and nothing is asked for twice."""
    target, q_draft = random_rows(1, DENSE), random_rows(101, DENSE)

    def as_tree(prefix: Prefix, path: Path) -> Prefix:
        line = sampled(q_draft, 3)((), path)
        draft = Draft(
            line.tokens,
            "t",
            line.confidence,
            line.distributions,
            parents=(-1, 0, 1),
            siblings=ALONE,
        )
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
