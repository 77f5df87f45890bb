"""Relative times: what a person would say, and no year unless it is another one."""

import datetime

import pytest

from app.wording import relative_time

NOW = datetime.datetime(2026, 3, 14, 15, 0)


@pytest.mark.parametrize(
    ("then", "text"),
    [
        (datetime.datetime(2026, 3, 14, 14, 59, 30), "now"),
        (datetime.datetime(2026, 3, 14, 14, 41), "19 min ago"),
        (datetime.datetime(2026, 3, 14, 12, 30), "2 h ago"),
        (datetime.datetime(2026, 3, 14, 0, 5), "14 h ago"),
        (datetime.datetime(2026, 3, 13, 23, 50), "yesterday"),
        (datetime.datetime(2026, 3, 12, 23, 50), "12 Mar"),
        (datetime.datetime(2026, 1, 3), "3 Jan"),
        (datetime.datetime(2025, 12, 31, 12, 0), "31 Dec 2025"),
        (datetime.datetime(2026, 3, 15), "now"),
    ],
)
def test_a_moment_is_relative_to_now(then: datetime.datetime, text: str) -> None:
    assert relative_time(then.timestamp(), NOW.timestamp()) == text


def test_minutes_count_across_midnight() -> None:
    now = datetime.datetime(2026, 3, 14, 0, 10)
    then = datetime.datetime(2026, 3, 13, 23, 50)
    assert relative_time(then.timestamp(), now.timestamp()) == "20 min ago"


def test_an_unknown_moment_has_no_text() -> None:
    assert relative_time(0.0) == ""
