"""What the controller makes of several free drafters in a simulated machine: trees where they pay.

The drafters are partly right where the others are wrong. All figures are means over fixed seeds.
"""

import numpy as np
import pytest

from decoding.events import Shape
from tests.fixtures.ensemble import Ensemble
from tests.fixtures.simulator import Curve, Log, curve

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
