"""verify_point_mass_tree, step after step, emits exactly the target's law: all is enumerated.

Each draw of the real rule forks over the tokens it may give. Wrong rules for trees must fail the
same enumeration.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base.parent_array import height
from decoding.draft import PointMassTree
from decoding.sampling.distribution import Distribution, SamplingSettings, warp
from decoding.verification.rules import TreeRows, TreeVerdict, verify_point_mass_tree
from tests.fixtures.trees import parents_of

N_VOCAB = 3
LENGTH = 3
CASES = 200
Prefix = tuple[int, ...]
Rule = Callable[[TreeRows, PointMassTree, np.random.Generator], TreeVerdict]


class Outcomes:
    """Gives each draw of a program one token, and remembers the others for another run."""

    def __init__(self, given: Prefix) -> None:
        self._given = given
        self._taken: Prefix = ()
        self.probability = 1.0
        self.untaken: list[Prefix] = []

    def choose(self, probabilities: Sequence[float]) -> int:
        place = len(self._taken)
        possible = [i for i, chance in enumerate(probabilities) if chance > 0.0]
        choice = self._given[place] if place < len(self._given) else possible[0]
        if place >= len(self._given):
            self.untaken += [(*self._taken, other) for other in possible[1:]]
        self._taken += (choice,)
        self.probability *= probabilities[choice]
        return choice


class Forking(Distribution):
    """Draws by the outcomes of the present run, whatever the number."""

    outcomes: Outcomes

    def draw(self, uniform: float) -> int:
        return int(self.ids[Forking.outcomes.choose(self.probabilities.tolist())])


def random_rows(seed: int) -> Callable[[Prefix], Distribution]:
    """A model: a distribution that depends on all that came before; some tokens are ruled out."""
    bounds = SamplingSettings(temperature=1.0, top_k=seed % 3, top_p=1.0, min_p=0.0)

    @cache
    def row(prefix: Prefix) -> Distribution:
        generator = np.random.default_rng([seed, len(prefix), *prefix])
        law = warp(generator.normal(size=N_VOCAB, scale=1.5).astype(np.float32), bounds)
        return Forking(law.ids, law.probabilities)

    return row


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


def law_of(rule: Rule, row: Callable[[Prefix], Distribution], seed: int) -> dict[Prefix, float]:
    """The exact distribution of the first tokens that steps emit."""
    waiting: list[dict[Prefix, float]] = [defaultdict(float) for _ in range(LENGTH + 1)]
    waiting[0][()] = 1.0
    for prefixes in waiting[:LENGTH]:
        for prefix, weight in list(prefixes.items()):
            draft = random_tree(seed, prefix)
            runs: list[Prefix] = [()]
            while runs:
                Forking.outcomes = outcomes = Outcomes(runs.pop())
                verdict = rule(_Rows(row, prefix, draft), draft, np.random.default_rng(0))
                said = [*(draft.tokens[node] for node in verdict.path), verdict.next_token]
                text = (*prefix, *said)[:LENGTH]
                waiting[len(text)][text] += weight * outcomes.probability
                runs += outcomes.untaken
    return waiting[LENGTH]


class _Rows:
    def __init__(
        self, row: Callable[[Prefix], Distribution], prefix: Prefix, draft: PointMassTree
    ) -> None:
        self._row, self._prefix, self._draft = row, prefix, draft

    def __getitem__(self, path: Sequence[int]) -> Distribution:
        return self._row((*self._prefix, *(self._draft.tokens[node] for node in path)))


def expected_law(row: Callable[[Prefix], Distribution]) -> dict[Prefix, float]:
    law: dict[Prefix, float] = {(): 1.0}
    for _ in range(LENGTH):
        law = {
            (*prefix, token): weight * row(prefix).of(token)
            for prefix, weight in law.items()
            for token in range(N_VOCAB)
        }
    return law


def distance(rule: Rule, seed: int) -> float:
    """Total variation between what a rule emits and the target's law."""
    row = random_rows(seed)
    emitted, expected = law_of(rule, row, seed), expected_law(row)
    return sum(abs(emitted.get(text, 0.0) - chance) for text, chance in expected.items()) / 2


def test_the_emitted_law_is_the_targets():
    assert max(distance(verify_point_mass_tree, seed) for seed in range(CASES)) < 1e-9


def children_of(draft: PointMassTree, node: int) -> list[int]:
    drafted = len(draft.tokens) - draft.window_tokens
    return [one for one in range(drafted) if draft.parents[one] == node]


def happens(chance: float) -> bool:
    return Forking.outcomes.choose([1.0 - chance, chance]) == 1


def siblings_against_the_same_law(
    target: TreeRows, draft: PointMassTree, generator: np.random.Generator
) -> TreeVerdict:
    """Each child gets its own chance at p_target, as if those before it had not been refused."""
    path: list[int] = []
    while True:
        law = target[path]
        taken = next(
            (
                child
                for child in children_of(draft, path[-1] if path else -1)
                if happens(law.of(draft.tokens[child]))
            ),
            None,
        )
        if taken is None:
            return TreeVerdict(tuple(path), law.draw(0.5))
        path.append(taken)


def drawn_again_after_a_mismatch(
    target: TreeRows, draft: PointMassTree, generator: np.random.Generator
) -> TreeVerdict:
    """What was drawn and matched no child is thrown away for a fresh draw."""
    verdict = verify_point_mass_tree(target, draft, generator)
    if not children_of(draft, verdict.path[-1] if verdict.path else -1):
        return verdict
    return TreeVerdict(verdict.path, target[list(verdict.path)].draw(0.5))


def the_row_before(
    target: TreeRows, draft: PointMassTree, generator: np.random.Generator
) -> TreeVerdict:
    """Rows are off by one: a child is judged by what followed its grandparent."""

    class Shifted:
        def __getitem__(self, path: Sequence[int]) -> Distribution:
            return target[list(path)[:-1]]

    return verify_point_mass_tree(Shifted(), draft, generator)


@pytest.mark.parametrize(
    "rule", [siblings_against_the_same_law, drawn_again_after_a_mismatch, the_row_before]
)
def test_control_wrong_rules_for_trees_are_caught(rule: Rule):
    assert max(distance(rule, seed) for seed in range(20)) > 0.02


def test_window_tokens_are_never_accepted():
    draft = PointMassTree((1, 1), (-1, 0), window_tokens=1)
    law = Distribution(np.array([1]), np.ones(1))
    rows = _Rows(lambda _: law, (), draft)
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
    verdict = verify_point_mass_tree(
        _Rows(lambda _: law, (), draft), draft, np.random.default_rng(seed)
    )
    assert [*verdict.path, verdict.next_token] == numbers[: len(verdict.path) + 1]
    assert [parents[node] for node in verdict.path] == [-1, *verdict.path][: len(verdict.path)]
    last = verdict.path[-1] if verdict.path else -1
    assert verdict.next_token == count or parents[verdict.next_token] != last
    is_leaf = last in range(count) and last not in parents
    assert (height(parents, last) == 0) == is_leaf
