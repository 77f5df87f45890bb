"""Trees of a drafter model are planned by what is kept of each rank: in the simulated machine."""

import numpy as np
import pytest

from decoding.estimation.acceptance import Acceptance, temperature_bucket
from decoding.estimation.draft_cost import LevelCost
from decoding.events import Shape, Step
from decoding.planning.managed_drafter import by_rank, learn, of_first
from decoding.planning.model_draft_planner import Probing
from decoding.planning.pausing import State, overall
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.forms import certain_tree
from tests.fixtures.simulated_text import constant
from tests.fixtures.simulator import H100, Machine, curve
from tests.fixtures.tree_drafter import both_forms, ranked_machine

FLAT = curve({1: 1.0, 64: 1.3})
CPU = curve({1: 1.0, 2: 1.9, 4: 2.6, 8: 4.2, 16: 5.7})
RANKS = (0.6, 0.15, 0.06)
STEPS, WARM, SEEDS = 500, 150, 2


@pytest.mark.slow
@pytest.mark.parametrize("draw_cost", [0.02, 0.1])
def test_where_tokens_cost_little_trees_gain_a_tenth_over_the_best_line(draw_cost: float):
    gained: list[float] = []
    for seed in range(SEEDS):
        trees = ranked_machine(RANKS, FLAT, draw_cost, seed=seed).run(steps=STEPS)
        machine = Machine(
            constant(RANKS[0], seed), FLAT, draw_cost=draw_cost, read_share=0.1, seed=seed
        )
        log = machine.run(steps=STEPS)
        lines = max(log.speedup(WARM), machine.best_fixed(log, WARM, draw_cost))
        assert trees.shapes[WARM:].count(Shape.TREE) > 0.9 * (STEPS - WARM)
        gained.append(trees.speedup(WARM) / lines)
    assert np.mean(gained) >= 1.1


def test_where_every_token_costs_the_drafter_is_paused_and_little_is_lost():
    machine = ranked_machine(RANKS, CPU, 0.05)
    log = machine.run(tokens=1500)
    assert log.speedup() >= 0.985
    state, reason = overall(machine.controller.statuses)
    assert state is State.PAUSED
    assert reason.startswith("tree: slower than plain: needs acceptance")


@pytest.mark.parametrize(("body", "least"), [("8B", 1.4), ("32B", 1.6)])
def test_where_widths_are_kept_trees_alone_have_as_many_rows(body: str, least: float) -> None:
    """Widths were chosen by lines: none were drafted for the 8B, half as many for the 32B."""
    known, changes = H100[body].passes, H100[body].changes
    machine = ranked_machine((0.8, 0.08, 0.03), known, 0.12, changes=changes)
    log = machine.replies(120, 160)
    assert log.speedup() > least
    assert log.shapes.count(Shape.TREE) > 0.9 * len(log.shapes)


def test_trees_that_were_never_right_are_probed_with_no_empty_one():
    machine = ranked_machine(RANKS, FLAT, 0.02)
    (trees,) = machine.controller.drafters
    for _ in range(2000):
        for rank in range(4):
            key = f"{temperature_bucket(SamplingSettings().temperature)}:rank{rank}"
            trees.estimates.acceptance.add(key, False)
    assert max(trees.by_rank()) < 0.005
    assert (
        Probing(machine.controller.costs).next([trees], [1, 2], machine.controller.costs, 8, 1.0)
        is None
    )


def test_a_tree_that_pays_only_when_small_is_found():
    """All of its nodes would lose; three in a row gain."""
    log = ranked_machine((0.88, 0.02, 0.01), CPU, 0.02).run(steps=STEPS)
    assert log.speedup(WARM) > 1.1
    assert np.median(log.drafted[WARM:]) <= 4


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "shape"), [(RANKS, Shape.TREE), ((0.9, 0.05, 0.02), Shape.LINE)])
def test_beside_each_other_lines_and_trees_do_as_well_as_the_better_form(
    ranks: tuple[float, ...], shape: Shape
) -> None:
    machine = both_forms(ranks, FLAT, 0.02)
    log = machine.run(steps=STEPS)
    alone = [both_forms(ranks, FLAT, 0.02, forms=[form]).run(steps=STEPS) for form in (0, 1)]
    assert log.speedup(WARM) >= 0.95 * max(one.speedup(WARM) for one in alone)
    assert log.shapes[WARM:].count(shape) > 0.8 * (STEPS - WARM)
    lines = machine.controller.drafters[0]
    assert lines.estimates.judged.judged > 30.0, (
        "whichever form drafts, it is known how often it is right"
    )


def test_where_every_token_costs_neither_form_makes_it_slower() -> None:
    log = both_forms(RANKS, CPU, 0.05).run(tokens=1500)
    assert log.speedup() >= 0.985


def test_ranks_are_counted_along_what_was_kept():
    """Of two children the second was kept, and of its only child nothing."""
    draft = certain_tree((5, 6, 7), (-1, -1, 1))
    acceptance = Acceptance()
    for _ in range(100):
        learn(acceptance, "warm", draft, Step((6, 9), "tree", 3, 1, 0.0, 0.1, 0.1, 0.0, branch=2))
    first = of_first(acceptance, "warm", 0.9)
    assert first == pytest.approx(0.0, abs=0.02)
    assert by_rank(acceptance, "warm", first)[1] == pytest.approx(1.0, abs=0.05)


def test_ranks_that_nobody_measured_share_what_the_others_leave():
    found = by_rank(Acceptance(), "warm", 0.6)
    assert found == pytest.approx([0.6, 0.15, 0.06, 0.0304])


def test_a_level_costs_the_same_whatever_is_planned():
    cost = LevelCost(0.1, 0.01, [1, 4])
    before = cost.level(3)
    cost.plan([1, 2, 3, 3])
    assert cost.level(3) == pytest.approx(before)
    assert cost.seconds(9, 0) == pytest.approx(0.1 + 0.11 + 0.12 + 0.12)
