"""On machines that others measured: never slower than plain, near the better of on and off.

`pytest -s -m slow tests/decoding/planning/test_curves.py` prints the table of the docs.
"""

import statistics
from functools import cache

import numpy as np
import pytest

from tests.fixtures.published import PUBLISHED, Outcome, Published, outcomes
from tests.fixtures.simulated_text import constant
from tests.fixtures.simulator import PARTLY_ON_GPU, Log, Machine

_SEEDS = 2

every_machine = pytest.mark.parametrize("known", PUBLISHED, ids=lambda known: known.name)


@pytest.mark.parametrize("known", PUBLISHED[::4], ids=lambda known: known.name)
def test_each_kind_of_text_is_near_the_better_of_on_and_off(known: Published) -> None:
    """Replies of each kind take turns, and the first ones teach."""
    for one in outcomes(known, rounds=3):
        assert one.auto >= 0.98, one
        assert one.of_better >= 0.95, one


@every_machine
def test_always_drafting_gains_and_loses_what_was_published(known: Published) -> None:
    """So that the simulated machines are like the published ones."""
    for kind, gained in known.gained.items():
        assert known.expected(kind) == pytest.approx(gained, rel=0.1), kind


def test_a_drafter_that_suits_code_alone_is_ready_when_code_comes() -> None:
    """Before a reply, of which nothing is known, what it missed is read: later that costs too much.

    A drafter that takes long to read was judged by the end of the last reply, and drafted nothing
    where that was prose.
    """
    code, _, prose = outcomes(PUBLISHED[0], rounds=4, read_share=0.25)
    assert (code.kind, prose.kind) == ("code", "prose")
    assert code.auto >= 1.03
    assert prose.auto >= 0.98


@pytest.mark.slow
@every_machine
def test_it_is_so_on_every_machine(known: Published) -> None:
    runs = [outcomes(known, seed, rounds=4) for seed in range(_SEEDS)]
    for kind in zip(*runs, strict=True):
        on, auto = (statistics.fmean(of) for of in ([o.on for o in kind], [o.auto for o in kind]))
        print("\n" + _row(kind[0], on, auto, min(one.auto for one in kind)), end="")
        assert min(one.auto for one in kind) >= 0.98
        assert auto / max(1.0, on) >= 0.95


def _row(one: Outcome, *figures: float) -> str:
    gained = one.machine.gained.get(one.kind)
    cells = [f"{gained:.2f}" if gained else "", *(f"{figure:.2f}" for figure in figures)]
    return f"| {' | '.join([one.machine.name, one.machine.known, one.kind, *cells])} |"


DRAW = {"processor": 0.005, "disk": 0.0003}
"""Cost of a token of a drafter of 1.5 GB on the GPU, in plain steps."""

REPLY, SEEDS = 256, 2


@cache
def logs(name: str, share: float) -> list[tuple[Machine, Log]]:
    known = PARTLY_ON_GPU[name][1]
    machines = [
        Machine(constant(share, seed), known, draw_cost=DRAW[name], seed=seed)
        for seed in range(SEEDS)
    ]
    return [(one, one.run(tokens=REPLY)) for one in machines]


@pytest.mark.parametrize("share", [0.6, 0.8, 0.9])
def test_drafts_are_short_beside_a_processor_and_long_beside_a_disk(share: float) -> None:
    drafted = {name: [np.mean(log.drafted) for _, log in logs(name, share)] for name in DRAW}
    assert max(drafted["processor"]) < min(drafted["disk"])
    assert max(max(log.drafted) for _, log in logs("processor", share)) < 16


@pytest.mark.parametrize("name", PARTLY_ON_GPU)
@pytest.mark.parametrize("share", [0.6, 0.8, 0.9])
def test_drafts_are_nearly_as_good_as_the_best_of_one_length(name: str, share: float) -> None:
    shares = [log.speedup() / one.best_fixed(log, 0, DRAW[name]) for one, log in logs(name, share)]
    assert np.mean(shares) >= 0.9


@pytest.mark.parametrize("name", PARTLY_ON_GPU)
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_useless_drafter_costs_next_to_nothing(name: str, share: float) -> None:
    assert all(log.speedup() >= 0.975 for _, log in logs(name, share))
