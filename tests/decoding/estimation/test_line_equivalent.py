"""What becomes of a tree's first branch is what would have become of a line: all is enumerated.

In law, above temperature 0: every outcome is counted. So drafters that share a drafter share what
is learned of it, and what is of another law is left out.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from decoding.draft import Draft, PointMassTree, SampledLine, TreeWithoutReplacement
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.cost import DraftCost, TreeSize
from decoding.estimation.draft_cost import LevelCost
from decoding.events import Step
from decoding.planning.managed_drafter import ManagedDrafter, as_line, kept_of
from decoding.sampling.distribution import point_mass
from decoding.sampling.settings import LossyRule, parse_lossy
from decoding.verification.rules import residual, verify_block, verify_traversal
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.drawn_trees import RowsAfter, Rule, from_the_top, random_tree, target_of
from tests.fixtures.enumeration import Path, Prefix

if TYPE_CHECKING:
    from decoding.drafters.trees import PlannedDrafter

CASES = 60
Kept = dict[tuple[int, int], float]
"""The probability of each length of a line and of how many of its tokens are kept."""


def chances(judged: Callable[[Path], tuple[int, int]]) -> Kept:
    found: Kept = defaultdict(float)
    paths: list[Prefix] = [()]
    while paths:
        path = Path(paths.pop())
        found[judged(path)] += path.probability
        paths += path.untaken
    return found


def sampled_tree(seed: int, path: Path) -> Draft:
    form = random_tree(seed, path)
    return Draft(form, "tree", (0.5,) * len(form.tokens))


def first_of(draft: Draft) -> Draft:
    line = as_line(draft, is_greedy=False)
    assert line is not None
    return line


def in_the_tree(seed: int, rule: Rule) -> Kept:
    """Of the first branch, judged with all others."""

    def judged(path: Path) -> tuple[int, int]:
        draft = sampled_tree(seed, path)
        assert isinstance(draft.form, TreeWithoutReplacement)
        path.is_ending = True
        verdict = rule(RowsAfter(target_of(seed), draft.form), draft.form, path)
        tokens = tuple(draft.tokens[node] for node in verdict.path)
        line = first_of(draft)
        return len(line), kept_of(line, step(*tokens, verdict.next_token, accepted=len(tokens)))

    return chances(judged)


def alone(seed: int) -> Kept:
    """Of the same branch, judged as a line."""

    class Rows:
        def __init__(self, drafted: Prefix) -> None:
            self._drafted = drafted

        def __getitem__(self, place: int, /):
            return target_of(seed)(self._drafted[:place])

    def judged(path: Path) -> tuple[int, int]:
        line = first_of(sampled_tree(seed, path)).form
        assert isinstance(line, SampledLine)
        path.is_ending = True
        verdict = verify_block(Rows(line.tokens), line, path)  # type: ignore[arg-type]
        return len(line.tokens), verdict.accepted

    return chances(judged)


def differences(rule: Rule) -> list[float]:
    """Total variation between the two, of random trees."""
    return [difference(in_the_tree(seed, rule), alone(seed)) for seed in range(CASES)]


def difference(one: Kept, other: Kept) -> float:
    both = one.keys() | other.keys()
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in both) / 2


@pytest.mark.usefixtures("symbolic")
def test_a_tree_keeps_as_much_of_its_first_branch_as_a_line_keeps() -> None:
    assert max(differences(verify_traversal)) < 1e-9


@pytest.mark.usefixtures("symbolic")
def test_control_judged_from_the_top_down_it_keeps_another_number() -> None:
    """That rule is lossless too, but a line is not judged by it."""
    assert max(differences(from_the_top(residual))) > 0.01


PARENTS = (-1, -1, 0, 1, 2)
"""Two children, one of the first, one of the second, and one of the first's child."""


def tree(*tokens: int, is_sampled: bool = False) -> Draft:
    count = len(tokens)
    laws = tuple(map(point_mass, tokens))
    form = (
        TreeWithoutReplacement(tokens, PARENTS, laws)
        if is_sampled
        else PointMassTree(tokens, PARENTS)
    )
    return Draft(form, "tree", (0.43,) * count, (4,) * count)


def step(*tokens: int, accepted: int) -> Step:
    return Step(tokens, "tree", 5, accepted, 0.0, 0.1, 0.1, 0.0, branch=3)


def test_the_first_branch_goes_down_by_first_children() -> None:
    line = first_of(tree(4, 5, 6, 7, 8, is_sampled=True))
    assert line.tokens == (4, 6, 8)
    assert isinstance(line.form, SampledLine)
    assert [int(law.ids[0]) for law in line.form.distributions] == [4, 6, 8]
    assert (line.confidence, line.evidence) == ((0.43,) * 3, (4,) * 3)


def test_at_temperature_0_a_line_is_sure_of_its_tokens() -> None:
    line = as_line(tree(4, 5, 6, 7, 8), is_greedy=True)
    assert line is not None
    assert (line.tokens, line.confidence, line.evidence) == ((4, 6, 8), (1.0,) * 3, (9,) * 3)


def test_what_has_another_law_is_no_line() -> None:
    assert as_line(tree(4, 5, 6, 7, 8), is_greedy=False) is None


class TreeDrafter(IdleDrafter):
    name = "tree"
    largest = TreeSize(3, 5)

    def plan(self, shape: object) -> None: ...


def pair_of_members(lines: Acceptance | None = None) -> tuple[ManagedDrafter, ManagedDrafter]:
    """Lines of a drafter, and its trees."""
    line = ManagedDrafter(IdleDrafter(), lines, DraftCost(1.0, 0.1))
    drafter: PlannedDrafter = TreeDrafter()
    cost = LevelCost(1.0, 0.1, (1, 2, 1))
    trees = ManagedDrafter(drafter, None, cost, drafter.largest, planned=drafter, lines=line)
    return line, trees


def judged_by_a_tree(
    draft: Draft, found: Step, temperature: float, rule: LossyRule | None = None
) -> tuple[int, int]:
    """Tokens that count as accepted and judged of lines, after a step over a tree."""
    line, trees = pair_of_members()
    for managed in (line, trees):
        managed.begin(temperature, rule)
    trees.learn(draft, found)
    judged = line.estimates.judged
    return round(judged.accepted), round(judged.judged)


@pytest.mark.parametrize(("temperature", "is_sampled"), [(0.0, False), (1.0, True)])
@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (step(4, 6, 8, 1, accepted=3), (3, 3)),
        (step(4, 6, 1, accepted=2), (2, 3)),
        (step(5, 7, 1, accepted=2), (0, 1)),
        (step(1, accepted=0), (0, 1)),
        (step(4, 6, accepted=2), (2, 2)),  # that ended the reply
    ],
)
def test_lines_learn_from_the_first_branch_alone(
    temperature: float, is_sampled: bool, found: Step, expected: tuple[int, int]
) -> None:
    draft = tree(4, 5, 6, 7, 8, is_sampled=is_sampled)
    assert judged_by_a_tree(draft, found, temperature) == expected


def test_lines_learn_nothing_from_what_is_of_another_law() -> None:
    drawn, found = tree(4, 5, 6, 7, 8, is_sampled=True), step(4, 6, 1, accepted=2)
    assert judged_by_a_tree(tree(4, 5, 6, 7, 8), found, 1.0) == (0, 0)
    assert judged_by_a_tree(drawn, found, 1.0, parse_lossy("typical")) == (0, 0)


def test_the_first_rank_of_a_tree_is_what_is_known_of_lines() -> None:
    line, trees = pair_of_members(Acceptance({"greedy:drawn": (20.0, 20.0)}))
    for managed in (line, trees):
        managed.begin(0.0)
    assert trees.by_rank()[0] == pytest.approx(1.0, abs=0.15)
    for _ in range(100):
        trees.learn(tree(4, 5, 6, 7, 8), step(5, 7, 1, accepted=2))
    assert trees.by_rank()[0] < 0.1
    assert line.estimates.at_position(0) < 0.1
    assert trees.by_rank()[1] == pytest.approx(1.0, abs=0.1)
