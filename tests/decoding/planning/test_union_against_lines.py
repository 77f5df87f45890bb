"""What the controller makes of several free drafters in a simulated machine: trees where they pay.

The drafters are partly right where the others are wrong. All figures are means over fixed seeds.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from decoding.draft import Draft, KeepOn
from decoding.events import Shape
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from tests.fixtures.simulated_text import N_VOCAB, Text, constant
from tests.fixtures.simulator import (
    Curve,
    FreeDrafter,
    Log,
    Machine,
    costs_of,
    curve,
)

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
