"""How long drafts are for a model that is partly on a GPU. Simulated: no GPU was at hand."""

from functools import cache

import numpy as np
import pytest

from tests.fixtures.simulated_text import constant
from tests.fixtures.simulator import PARTLY_ON_GPU, Log, Machine

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
