"""Suites of models that are read from disk."""

import pytest

from app.bench.suite import SUITES, round_seconds, slow_suite, tasks
from backends.base import UsageError

QUICK = SUITES["quick"]


@pytest.mark.parametrize("plain_seconds", [0.02, 0.1, 0.3, 0.6])
def test_a_round_fits_into_the_time_of_the_suite(plain_seconds: float) -> None:
    suite = slow_suite(QUICK, plain_seconds, 3)
    assert round_seconds(suite, plain_seconds, 3) <= QUICK.seconds
    assert {task.kind for task in tasks(suite)} == {task.kind for task in tasks(QUICK)}


def test_the_slower_the_model_the_shorter_its_suite() -> None:
    times = (0.02, 0.1, 0.3, 0.6)
    sizes = [round_seconds(slow_suite(QUICK, one, 3), 1.0, 3) for one in times]
    assert sizes == sorted(sizes, reverse=True)
    assert slow_suite(QUICK, 0.001, 3).max_tokens == QUICK.max_tokens


def test_one_that_would_take_hours_is_refused() -> None:
    assert slow_suite(QUICK, 2.0, 3).max_tokens == 32
    with pytest.raises(UsageError, match=r"about 4\.\d hours") as refused:
        slow_suite(QUICK, 26.0, 3)
    assert "a token takes 26 s" in refused.value.why
