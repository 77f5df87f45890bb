"""Proposals of several drafters put together: what their tokens are worth, and which are sent."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base.parent_array import count_leaves, is_tree, path_to
from decoding.draft import NO_DRAFT, Draft, KeepOn, PointMassLine, PointMassTree
from decoding.estimation.cost import CostModel
from decoding.events import Shape
from decoding.planning.controller import Controller
from decoding.planning.draft_length import best_length
from decoding.planning.free_drafting import FreeDrafting
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.union_tree import Consensus, Proposal, is_forked, union
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import LossyRule
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.simulated_text import N_VOCAB, Text, constant
from tests.fixtures.simulator import Curve, FreeDrafter, Log, Machine, costs_of, curve

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


# What the controller makes of several free drafters in a simulated machine: trees where they pay.
#
# The drafters are partly right where the others are wrong. All figures are means over fixed seeds.

ALIKE = 0.4
"""How often two that are both wrong say the same, and how often one copies another."""


class Variant(Text):
    """The same text, as another drafter proposes it."""

    def __init__(self, text: Text, share: float, seed: int) -> None:
        generator = np.random.default_rng(seed)
        count = len(text.tokens)
        is_copied = np.random.default_rng(99).random(count) < ALIKE
        luck = np.where(is_copied, np.random.default_rng(98).random(count), generator.random(count))
        other = np.where(generator.random(count) < ALIKE, 1, generator.integers(1, N_VOCAB, count))
        self.tokens = text.tokens
        self._right = (luck < share).tolist()
        self._wrong = other.tolist()

    def proposed(self, place: int) -> int:
        missed = 0 if self._right[place] else self._wrong[place]
        return (self.tokens[place] + missed) % N_VOCAB


class ShortDrafter(FreeDrafter):
    """Proposes no more than drafters do that look words up."""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        return super().propose(history, min(limit, 12), keep_on)


class Ensemble(Machine):
    """Free drafters that are right at the given shares, under one controller.

    branches: of trees that the target verifies. surcharge: factor that a pass over a tree takes.
    """

    def __init__(
        self,
        shares: Sequence[float],
        known: Curve,
        *,
        branches: int = 16,
        surcharge: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(constant(1.0, seed), known, seed=seed, surcharge=surcharge)
        self.texts = [Variant(self.text, share, 10 * seed + i) for i, share in enumerate(shares)]
        drafters: list[ManagedDrafter] = []
        for number, text in enumerate(self.texts):
            drafter = ShortDrafter(text)
            drafter.name = f"free{number}"
            drafters.append(ManagedDrafter(drafter))
        self.controller = Controller(
            drafters, costs_of(known), N_VOCAB, self.clock, max_branches=branches
        )

    def best_line(self, log: Log, first: int) -> float:
        """The speedup of the best drafter and draft length that never change, in hindsight."""
        found: list[float] = []
        said = self.text
        for text in self.texts:
            self.text = text
            found.append(self.best_fixed(log, first))
        self.text = said
        return max(found)


FLAT = curve({1: 1.0, 64: 1.3})
CPU = curve({1: 1.0, 2: 1.9, 4: 2.6, 8: 4.2, 16: 5.7})
STEPS, WARM, SEEDS = 500, 150, 2
SHARES = {"three": (0.3, 0.4, 0.5), "four": (0.5, 0.45, 0.4, 0.35)}


def logs(shares: tuple[float, ...], known: Curve, branches: int) -> list[Log]:
    machines = [Ensemble(shares, known, branches=branches, seed=seed) for seed in range(SEEDS)]
    return [machine.run(steps=STEPS) for machine in machines]


def speedup(found: list[Log]) -> float:
    return float(np.mean([log.speedup(WARM) for log in found]))


def share_of(shape: Shape, found: list[Log]) -> float:
    return float(np.mean([one is shape for log in found for one in log.shapes[WARM:]]))


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARES)
def test_where_tokens_cost_little_trees_are_sent_and_gain_a_tenth(name: str):
    trees, lines = (logs(SHARES[name], FLAT, branches) for branches in (16, 1))
    machine = Ensemble(SHARES[name], FLAT)
    fixed = machine.best_line(machine.run(steps=STEPS), WARM)
    print(f"trees {speedup(trees):.2f}, lines {speedup(lines):.2f}, best fixed {fixed:.2f} × plain")
    assert share_of(Shape.TREE, trees) > 0.9
    assert share_of(Shape.TREE, lines) == 0.0
    assert speedup(trees) >= 1.1 * speedup(lines)
    assert speedup(trees) >= 1.1 * fixed


@pytest.mark.parametrize("shares", [*SHARES.values(), (0.8, 0.7), (0.9, 0.6, 0.5)])
def test_where_every_token_costs_lines_stay_and_nothing_is_lost(shares: tuple[float, ...]):
    trees, lines = (logs(shares, CPU, branches) for branches in (16, 1))
    print(f"trees allowed {speedup(trees):.3f}, forbidden {speedup(lines):.3f} × plain")
    assert share_of(Shape.TREE, trees) < 0.1
    assert speedup(trees) >= 0.99 * max(1.0, speedup(lines))


def test_trees_that_take_longer_than_lines_are_found_out():
    """Passes over trees take half as long again, which nothing but the passes tells."""
    machine = Ensemble((0.8, 0.3), FLAT, surcharge=1.5)
    log = machine.run(steps=STEPS)
    lines = Ensemble((0.8, 0.3), FLAT, branches=1).run(steps=STEPS)
    assert Shape.TREE in log.shapes[:WARM]
    assert share_of(Shape.TREE, [log]) < 0.1
    assert log.speedup(WARM) >= 0.97 * lines.speedup(WARM)


def test_every_drafter_learns_whether_its_tokens_were_sent_or_not():
    machine = Ensemble((0.3, 0.5), FLAT)
    machine.run(steps=STEPS)
    found = [managed.estimates.judged for managed in machine.controller.drafters]
    shares = [count.accepted / count.judged for count in found]
    assert shares == pytest.approx([0.3, 0.5], abs=0.12)
    assert all(managed.unsent < 32 for managed in machine.controller.drafters)
