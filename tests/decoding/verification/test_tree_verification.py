"""verify_point_mass_tree, step after step, emits exactly the target's law: all is enumerated.

Each draw of the real rule forks over the tokens it may give. Wrong rules for trees must fail the
same enumeration.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base.parent_array import height
from decoding.draft import PointMassTree
from decoding.sampling.distribution import Distribution, SamplingSettings
from decoding.verification.rules import TreeRows, TreeVerdict, verify_point_mass_tree
from tests.fixtures.drawn_trees import RowsAfter
from tests.fixtures.enumeration import (
    N_VOCAB,
    Path,
    Prefix,
    draw,
    law_of,
    plain,
    random_rows,
    total_variation,
)
from tests.fixtures.trees import parents_of

CASES = 200
Rule = Callable[[TreeRows, PointMassTree, Any], TreeVerdict]


def random_tree(seed: int, prefix: Prefix) -> PointMassTree:
    """A tree with no two children alike, of which the last nodes may be window tokens."""
    generator = np.random.default_rng([seed, 99, len(prefix), *prefix])
    tokens: list[int] = []
    parents: list[int] = []
    for _ in range(int(generator.integers(0, 7))):
        place = int(generator.integers(-1, len(tokens))), int(generator.integers(N_VOCAB))
        if place not in zip(parents, tokens, strict=True):
            parents.append(place[0])
            tokens.append(place[1])
    count = len(tokens)
    window_tokens = int(generator.integers(0, count + 1)) if generator.random() < 0.3 else 0
    return PointMassTree(tuple(tokens), tuple(parents), window_tokens)


def distance(rule: Rule, seed: int) -> float:
    """Total variation between what a rule emits and the target's law; some rule tokens out."""
    bounds = SamplingSettings(temperature=1.0, top_k=seed % 3, top_p=1.0, min_p=0.0)
    target = random_rows(seed, bounds)

    def step(prefix: Prefix, path: Path) -> Prefix:
        draft = random_tree(seed, prefix)
        rows = RowsAfter(lambda after: target(prefix + after), draft)
        verdict = rule(rows, draft, path)
        return (*(draft.tokens[node] for node in verdict.path), verdict.next_token)

    return total_variation(law_of(step), law_of(plain(target)))


@pytest.mark.usefixtures("symbolic")
def test_the_emitted_law_is_the_targets():
    assert max(distance(verify_point_mass_tree, seed) for seed in range(CASES)) < 1e-9


def children_of(draft: PointMassTree, node: int) -> list[int]:
    drafted = len(draft.tokens) - draft.window_tokens
    return [one for one in range(drafted) if draft.parents[one] == node]


def siblings_against_the_same_law(
    target: TreeRows, draft: PointMassTree, path: Path
) -> TreeVerdict:
    """Each child gets its own chance at p_target, as if those before it had not been refused."""
    nodes: list[int] = []
    while True:
        law, below = target[nodes], children_of(draft, nodes[-1] if nodes else -1)
        taken = next((one for one in below if path.happens(law.of(draft.tokens[one]))), None)
        if taken is None:
            return TreeVerdict(tuple(nodes), draw(law, path))
        nodes.append(taken)


def drawn_again_after_a_mismatch(target: TreeRows, draft: PointMassTree, path: Path) -> TreeVerdict:
    """What was drawn and matched no child is thrown away for a fresh draw."""
    verdict = verify_point_mass_tree(target, draft, path)  # type: ignore[arg-type]
    if not children_of(draft, verdict.path[-1] if verdict.path else -1):
        return verdict
    return TreeVerdict(verdict.path, draw(target[list(verdict.path)], path))


def the_row_before(target: TreeRows, draft: PointMassTree, path: Path) -> TreeVerdict:
    """Rows are off by one: a child is judged by what followed its grandparent."""

    class Shifted:
        def __getitem__(self, path: Sequence[int]) -> Distribution:
            return target[list(path)[:-1]]

    return verify_point_mass_tree(Shifted(), draft, path)  # type: ignore[arg-type]


@pytest.mark.usefixtures("symbolic")
@pytest.mark.parametrize(
    "rule", [siblings_against_the_same_law, drawn_again_after_a_mismatch, the_row_before]
)
def test_control_wrong_rules_for_trees_are_caught(rule: Rule):
    assert max(distance(rule, seed) for seed in range(20)) > 0.02


def test_window_tokens_are_never_accepted():
    draft = PointMassTree((1, 1), (-1, 0), window_tokens=1)
    law = Distribution(np.array([1]), np.ones(1))
    rows = RowsAfter(lambda _: law, draft)
    verdict = verify_point_mass_tree(rows, draft, np.random.default_rng(0))
    assert verdict == TreeVerdict((0,), 1)


@settings(max_examples=60)
@given(parents_of(9), st.integers(0, 1 << 20))
def test_the_branch_followed_is_the_one_that_was_drawn(parents: list[int], seed: int):
    """Every node has its own token here, so that what is drawn says which node is meant."""
    count = len(parents)
    draft = PointMassTree(tuple(range(count)), tuple(parents))
    law = Distribution(np.arange(count + 1), np.full(count + 1, 1.0 / (count + 1)))
    numbers = [int(law.draw(one)) for one in 1.0 - np.random.default_rng(seed).random(count + 1)]
    rows = RowsAfter(lambda _: law, draft)
    verdict = verify_point_mass_tree(rows, draft, np.random.default_rng(seed))
    assert [*verdict.path, verdict.next_token] == numbers[: len(verdict.path) + 1]
    assert [parents[node] for node in verdict.path] == [-1, *verdict.path][: len(verdict.path)]
    last = verdict.path[-1] if verdict.path else -1
    assert verdict.next_token == count or parents[verdict.next_token] != last
    is_leaf = last in range(count) and last not in parents
    assert (height(parents, last) == 0) == is_leaf
