"""The error of a mean under noise that lasts."""

import math
import random

import pytest

from decoding.telemetry import BatchMeans


def means(durations: list[float]) -> BatchMeans:
    result = BatchMeans()
    for seconds in durations:
        result.add(seconds)
    return result


def test_a_short_series_has_no_error() -> None:
    assert means([0.1] * 3).error is None
    assert means([0.1] * 4).error == pytest.approx(0.0)
    assert BatchMeans().noise is None


@pytest.mark.parametrize("count", [5, 8, 63, 64, 100, 1000])
def test_every_duration_counts_once(count: int) -> None:
    series = means([0.01] * count)
    assert (series.count, series.total) == (count, pytest.approx(0.01 * count))
    assert series.error == pytest.approx(0.0, abs=1e-9)


def test_the_error_is_that_of_the_mean() -> None:
    chance = random.Random(1)
    series = [means([chance.gauss(1.0, 0.2) for _ in range(400)]) for _ in range(200)]
    claimed = sum(one.error or 0.0 for one in series) / len(series)
    assert claimed == pytest.approx(0.2 / math.sqrt(400), rel=0.1)


def test_noise_that_lasts_has_a_larger_error() -> None:
    quick = means([1.0, 2.0] * 64)
    slow = means([1.0] * 64 + [2.0] * 64)
    assert quick.error == pytest.approx(0.0)
    assert slow.error is not None
    assert slow.error > 0.1


def test_noise_is_the_error_over_one_second() -> None:
    series = means([0.5] * 16 + [1.5] * 48 + [0.5] * 8 + [1.0] * 16)
    assert series.noise is not None
    assert series.error is not None
    assert series.noise == pytest.approx(series.error * math.sqrt(series.total))
