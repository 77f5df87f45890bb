"""What a layer costs, from measurements of which some are poor."""

import numpy as np
import pytest

from models.tuning.recipe_search import CostLine


def test_a_line_is_found_through_costs_that_scatter() -> None:
    random = np.random.default_rng(4)
    exact = CostLine(0.5, 0.8 / 30)
    measured = {
        skipped: [exact.of(skipped) * random.uniform(0.95, 1.05) for _ in range(count)]
        for skipped, count in {0: 1, 1: 30, 15: 2}.items()
    }
    measured[1][3] *= 4.0  # it met a busy machine
    found = CostLine.through(measured, 30)
    assert found is not None
    for skipped in (0, 1, 8, 20):
        assert found.of(skipped) == pytest.approx(exact.of(skipped), rel=0.08)


def test_a_few_layers_tell_nothing() -> None:
    assert CostLine.through({0: [0.5], 1: [0.4, 0.45]}, 30) is None
    assert CostLine.through({15: [0.3, 0.2]}, 30) is None


@pytest.mark.parametrize(
    "measured", [{0: [0.5], 4: [0.6, 0.7]}, {0: [0.5], 4: [0.01, 0.02]}, {1: [0.1], 4: [0.2] * 2}]
)
def test_no_layer_is_free_or_costs_more_than_all(measured: dict[int, list[float]]) -> None:
    found = CostLine.through(measured, 8)
    assert found is not None
    assert found.whole > 0.0
    assert 0.0 <= found.layer <= 1.0 / 8
