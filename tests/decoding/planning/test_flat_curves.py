"""Where a pass over 64 tokens costs about two plain steps, drafts are long, and from the start."""

import numpy as np
import pytest

from decoding.estimation.cost import CostModel, Measured
from decoding.planning.pausing import largest_tree
from tests.fixtures.simulated_text import bursts, collapse, constant
from tests.fixtures.simulator import CURVES, STREAMED, Curve, Machine, curve

DRAW = 0.008
"""Cost of a small drafter's token, in plain steps of most of a second."""

REPLY, SEEDS = 128, 4


def machine(share: float, name: str, seed: int, draw_cost: float | None = DRAW) -> Machine:
    return Machine(constant(share, seed), STREAMED[name][1], draw_cost=draw_cost, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.parametrize(
    ("share", "first", "later"),
    [(0.6, 0.95, 0.96), (0.8, 0.92, 0.95), (0.9, 0.85, 0.93), (0.97, 0.65, 0.85)],
)
@pytest.mark.parametrize("draw_cost", [DRAW, None])
def test_replies_are_nearly_as_fast_as_with_the_best_fixed_length(
    name: str, share: float, first: float, later: float, draw_cost: float | None
) -> None:
    """The first one too, in which all is learned; the best length is known in hindsight."""
    shares: list[float] = []
    afterwards: list[float] = []
    for seed in range(SEEDS):
        one = machine(share, name, seed, draw_cost)
        log = one.run(tokens=REPLY)
        shares.append(log.speedup() / one.best_fixed(log, 0, draw_cost or 0.0))
        log = one.run(tokens=4 * REPLY)
        afterwards.append(log.speedup() / one.best_fixed(log, 0, draw_cost or 0.0))
    assert np.mean(shares) >= first
    assert np.mean(afterwards) >= later


@pytest.mark.parametrize("name", STREAMED)
def test_what_is_nearly_always_right_drafts_dozens(name: str) -> None:
    log = machine(0.99, name, 1).run(tokens=600)
    assert max(log.drafted) > 40
    assert log.speedup() > 10


@pytest.mark.parametrize("name", STREAMED)
def test_a_drafter_that_nobody_knows_drafts_at_the_first_step(name: str) -> None:
    """A lost attempt costs half a step, and each step without one loses two tokens."""
    for seed in range(SEEDS):
        log = machine(0.7, name, seed).run(tokens=REPLY)
        assert log.drafted[0] >= 2


@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.2])
@pytest.mark.parametrize("draw_cost", [None, DRAW, 0.1, 0.3])
def test_no_drafter_makes_a_short_reply_slower_than_plain(
    name: str, share: float, draw_cost: float | None
) -> None:
    """The first reply opens the budget, for less than one in forty; later ones lose less."""
    for seed in range(SEEDS):
        one = machine(share, name, seed, draw_cost)
        log = one.run(tokens=REPLY)
        assert log.speedup() >= 0.975
        for _ in range(3):
            one.run(tokens=REPLY, log=log)
        assert log.speedup() >= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.parametrize("draw_cost", [None, DRAW])
def test_a_text_that_changes_costs_little(name: str, draw_cost: float | None) -> None:
    turns = Machine(collapse(500, 3), STREAMED[name][1], draw_cost=draw_cost)
    assert turns.run(tokens=1500).speedup() >= 0.98
    comes_and_goes = Machine(bursts(40, 3), STREAMED[name][1], draw_cost=draw_cost)
    assert comes_and_goes.run(tokens=800).speedup() >= 1.0


@pytest.mark.parametrize(
    ("plain", "known", "grows"),
    [
        (0.873, STREAMED["mapped"][1], True),
        (0.522, STREAMED["locked"][1], True),
        (0.01, STREAMED["mapped"][1], False),
        (0.873, CURVES["stepped"], False),
        (0.873, curve({1: 1.0, 64: 6.0}), False),
    ],
    ids=["mapped", "locked", "fast", "steep", "not flat"],
)
def test_trees_are_large_where_a_slow_target_reads_many_tokens_as_fast_as_one(
    plain: float, known: Curve, grows: bool
) -> None:
    """Elsewhere they have the limits that they always had."""
    costs = CostModel(Measured({n: plain * known[n] for n in range(1, len(known))}))
    assert (largest_tree(costs).nodes > 32) is grows
