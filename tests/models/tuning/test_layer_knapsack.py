"""The cheapest layers to skip of each number, against trying every set."""

from itertools import combinations

import numpy as np
import pytest

from models.self_draft.recipe import runs
from models.tuning.recipe_search import cheapest_sets


@pytest.mark.parametrize(
    ("layers", "found"),
    [((), []), ((3,), [(3, 3)]), ((0, 1, 2), [(0, 2)]), ((0, 2, 3, 7), [(0, 0), (2, 3), (7, 7)])],
)
def test_runs_are_consecutive_layers(layers: tuple[int, ...], found: list[tuple[int, int]]) -> None:
    assert runs(layers) == found


@pytest.mark.parametrize("n_layers", [1, 2, 3, 5, 8])
def test_no_set_of_a_size_is_cheaper(n_layers: int) -> None:
    random = np.random.default_rng(n_layers)
    for _ in range(20):
        losses = random.exponential(size=(n_layers, n_layers))

        def loss(skipped: tuple[int, ...], losses: np.ndarray = losses) -> float:
            return sum(losses[run] for run in runs(skipped))

        found = list(cheapest_sets(losses))
        assert [len(one) for one in found] == list(range(1, n_layers))
        for one in found:
            least = min(map(loss, combinations(range(n_layers), len(one))))
            assert loss(one) == pytest.approx(least)


def test_what_is_not_known_is_not_proposed() -> None:
    losses = np.full((4, 4), np.inf)
    losses[1, 1] = losses[3, 3] = 0.5
    assert list(cheapest_sets(losses)) in ([(1,), (1, 3)], [(3,), (1, 3)])
