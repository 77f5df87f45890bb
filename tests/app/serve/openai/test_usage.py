"""Figures of several choices are those of all of them."""

import pytest

from app.serve.dialects.openai import timings_of
from app.serve.events import Ended, EndReason, Usage

FIRST = Usage(10, 4, 12, 0, 0, 0, 0.5, 1.0, 11.0, 6, 3)
SECOND = Usage(10, 9, 8, 0, 0, 0, 0.25, 3.0, 2.0, 2, 1)
UNMEASURED = Usage(10, 9, 1)


def timings(*usages: Usage) -> dict[str, object]:
    return timings_of([Ended(EndReason.STOP, usage) for usage in usages])


def test_timings_are_those_of_all_choices() -> None:
    assert timings(FIRST, SECOND, UNMEASURED) == {
        "cache_n": 22,
        "prompt_n": 8,
        "prompt_ms": 750.0,
        "predicted_n": 21,
        "predicted_ms": 4000.0,
        "predicted_per_second": pytest.approx(17 / 4),
        "draft_n": 8,
        "draft_n_accepted": 4,
    }


def test_what_was_not_measured_is_null() -> None:
    told = timings(UNMEASURED)
    assert (told["prompt_ms"], told["predicted_ms"], told["predicted_per_second"]) == (None,) * 3
    assert timings()["predicted_n"] == 0
