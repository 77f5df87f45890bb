"""Proposals of several drafters put together: what their tokens are worth, and which are sent."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base.parent_array import count_leaves, is_tree, path_to
from decoding.draft import NO_DRAFT, Draft, KeepOn, PointMassLine, PointMassTree
from decoding.estimation.cost import CostModel
from decoding.events import Shape
from decoding.planning.draft_length import best_length
from decoding.planning.free_drafting import FreeDrafting
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.union_tree import Consensus, Proposal, is_forked, union
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import LossyRule
from tests.fixtures.drafters import IdleDrafter

common = settings(max_examples=60)
chances = st.floats(0.01, 0.99)
lines = st.lists(st.tuples(st.integers(0, 2), chances), min_size=1, max_size=6)
PLENTY = 1e9


@st.composite
def several(draw: st.DrawFn) -> list[Proposal]:
    """Up to four proposals that often begin alike."""
    found = draw(st.lists(lines, min_size=1, max_size=4))
    return [
        Proposal(f"d{number}", tuple(token for token, _ in line), [share for _, share in line])
        for number, line in enumerate(found)
    ]


def together(proposals: Sequence[Proposal]) -> dict[tuple[int, ...], float]:
    """Every token of the union by its path, with the probability that it is accepted."""
    found: dict[tuple[int, ...], float] = {}
    for one in proposals:
        likely = 1.0
        for place, share in enumerate(one.acceptance):
            likely *= share
            found[one.tokens[: place + 1]] = likely
    return found


@common
@given(several())
def test_tokens_that_follow_the_same_ones_are_accepted_at_most_once(proposals: list[Proposal]):
    consensus = Consensus()
    for said in [(), (0, 1), (0, 1), (2,)]:
        by_parent: dict[tuple[int, ...], float] = {}
        for path, likely in together(consensus.weighed(proposals)).items():
            by_parent[path[:-1]] = by_parent.get(path[:-1], 0.0) + likely
        whole = together(consensus.weighed(proposals)) | {(): 1.0}
        assert all(total <= whole[parent] + 1e-9 for parent, total in by_parent.items())
        consensus.learn(said)


@common
@given(several(), st.integers(1, 20), st.integers(1, 4))
def test_the_union_has_the_likeliest_tokens(
    proposals: list[Proposal], most: int, branches: int
) -> None:
    weighed = Consensus().weighed(proposals)
    tree = union(weighed, most, branches)
    likely = together(weighed)
    assert is_tree(tree.parents)
    assert tree.joint == sorted(tree.joint, reverse=True)
    for count in range(1, len(tree.tokens) + 1):
        assert count_leaves(tree.parents[:count]) <= branches
    paths = [
        tuple(tree.tokens[above] for above in path_to(node, tree.parents))
        for node in range(len(tree.tokens))
    ]
    assert len(set(paths)) == len(paths) <= most
    assert tree.joint == pytest.approx([likely[path] for path in paths])
    if branches == 4:  # as many as there are proposals
        best = sorted((one for one in likely.values() if one > 0.005), reverse=True)[:most]
        assert tree.joint == pytest.approx(best)
    for node, source in enumerate(tree.sources):
        (named,) = (one for one in proposals if one.drafter == source)
        assert named.tokens[: len(paths[node])] == paths[node]


def test_one_proposal_is_its_own_union():
    line = Proposal("a", (4, 5, 6), (0.9, 0.8, 0.7))
    (weighed,) = Consensus().weighed([line])
    assert list(weighed.acceptance) == [0.9, 0.8, 0.7]
    assert not is_forked([line])
    draft = union([weighed], 15, 4).draft(2)
    assert draft == Draft(PointMassLine((4, 5)), "a", (0.9, 0.8), (0, 0))


def test_who_agrees_raises_an_estimate_and_who_contradicts_lowers_it():
    def first(*others: int) -> float:
        found = [Proposal("a", (7,), (0.5,))]
        found += [Proposal(f"o{place}", (token,), (0.4,)) for place, token in enumerate(others)]
        return Consensus().weighed(found)[0].acceptance[0]

    assert first(7) > first() == 0.5 > first(8) > first(8, 9)
    assert first(7, 7) > first(7) > first(7, 8)


def test_it_learns_what_agreement_is_worth():
    """Two that err alike: where both say the same it is right half the time, and never if not."""
    consensus = Consensus()
    alike = [Proposal("a", (7,), (0.5,)), Proposal("b", (7,), (0.5,))]
    apart = [alike[0], Proposal("b", (8,), (0.5,))]
    before = consensus.weighed(apart)[1].acceptance[0]
    for turn in range(200):
        consensus.weighed(alike)
        consensus.learn([7 if turn % 2 else 9])
        consensus.weighed(apart)
        consensus.learn([7 if turn % 2 else 9])
    assert consensus.weighed(alike)[0].acceptance[0] == pytest.approx(0.5, abs=0.03)
    assert consensus.weighed(apart)[1].acceptance[0] < 0.1 < before


def test_what_several_drafters_propose_names_each_of_them():
    proposals = [Proposal("a", (1, 2, 3), (0.9, 0.9, 0.9)), Proposal("b", (1, 4), (0.5, 0.4))]
    tree = union(proposals, 4, 2)
    draft = tree.draft(4)
    assert draft.shape is Shape.TREE
    assert draft.form == PointMassTree((1, 2, 3, 4), (-1, 0, 1, 0))
    assert draft.sources == ("a", "a", "a", "b")
    assert draft.drafter == "a+b"
    assert tree.draft(3).shape is Shape.LINE
    assert tree.draft(3).sources == ()


class Fixed(IdleDrafter):
    """Proposes one line always."""

    def __init__(self, line: Proposal) -> None:
        self.name = line.drafter
        self._line = line

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        tokens = self._line.tokens[:limit]
        shares = tuple(self._line.acceptance[:limit])
        return Draft(PointMassLine(tokens), self.name, shares, tuple(range(len(tokens))))


curves = st.lists(st.floats(0.0, 1.5), min_size=8, max_size=8).map(
    lambda steps: CostModel({1: 1.0, **{n: 1.0 + sum(steps[: n - 1]) for n in range(2, 10)}})
)


@common
@given(several(), curves, st.floats(0.0, 4.0), st.floats(1.0, 3.0), st.integers(1, 8))
def test_no_more_is_sent_than_can_be_afforded(
    proposals: list[Proposal], costs: CostModel, affordable: float, rate: float, limit: int
) -> None:
    drafters = [ManagedDrafter(Fixed(one)) for one in proposals]
    free = FreeDrafting(drafters, costs, 10, branches=3)
    offer = free.best(free.poll(drafters, [1], limit), limit, rate, affordable)
    draft = offer.draft
    assert len(draft) <= limit
    assert costs.of_draft(len(draft)) <= affordable
    assert (offer.gain > 0.0) == (len(draft) > 0)
    if draft.is_tree:
        assert draft.width <= 3


@common
@given(several(), curves, st.floats(0.0, 4.0), st.floats(1.0, 3.0))
def test_one_drafter_is_sent_as_the_line_of_the_best_length(
    proposals: list[Proposal], costs: CostModel, affordable: float, rate: float
) -> None:
    managed = ManagedDrafter(Fixed(proposals[0]))
    free = FreeDrafting([managed], costs, 10, branches=3)
    proposed = free.poll([managed], [1], 8)
    offer = free.best(proposed, 8, rate, affordable)
    proposal = proposed[0][1] if proposed else NO_DRAFT
    acceptance = managed.estimates.of_draft(proposal)
    plan = best_length(acceptance, costs, rate=rate, affordable=affordable)
    assert (len(offer.draft), offer.gain) == (plan.length, plan.gain)
    assert offer.draft.tokens == proposal.tokens[: plan.length]
    assert not offer.draft.is_tree


def test_a_tree_that_takes_longer_than_a_line_gives_way_to_it():
    costs = CostModel({1: 1.0, 8: 1.2})
    drafters = [
        ManagedDrafter(Fixed(Proposal("a", (1, 2), (0.6, 0.6)))),
        ManagedDrafter(Fixed(Proposal("b", (3, 4), (0.5, 0.6)))),
    ]
    free = FreeDrafting(drafters, costs, 10, branches=4)
    assert free.best(free.poll(drafters, [1], 7), 7, 1.0, PLENTY).draft.shape is Shape.TREE
    for _ in range(60):
        costs.observe(5, 2.5 * costs.seconds(5), is_tree=True)
    assert costs.of_draft(4) == pytest.approx(0.2 * 4 / 7)
    assert costs.of_tree(4) > 1.3
    assert free.best(free.poll(drafters, [1], 7), 7, 1.0, PLENTY).draft.shape is Shape.LINE


def test_rules_that_are_lossy_are_given_lines():
    drafters = [
        ManagedDrafter(Fixed(Proposal("a", (1, 2), (0.6, 0.6)))),
        ManagedDrafter(Fixed(Proposal("b", (3, 4), (0.5, 0.6)))),
    ]
    free = FreeDrafting(drafters, CostModel({1: 1.0, 8: 1.2}), 10, branches=4)
    for lossy, shape in [(LossyRule("typical", 0.3), Shape.LINE), (None, Shape.TREE)]:
        free.begin(Sampler(SamplingSettings(lossy=lossy)))
        assert free.best(free.poll(drafters, [1], 7), 7, 1.0, PLENTY).draft.shape is shape
