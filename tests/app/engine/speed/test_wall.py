"""The rate that memory and disk allow."""

import pytest

from app.engine.metrics import wall

GIGABYTE = 10**9


def test_in_memory_it_is_bandwidth_over_bytes() -> None:
    assert wall(GIGABYTE, 20e9) == 20.0
    assert wall(GIGABYTE, None) is None


@pytest.mark.parametrize(
    ("streamed", "disk", "expected"),
    [(GIGABYTE // 2, 1e9, 2.0), (GIGABYTE, 1e9, 1.0), (GIGABYTE // 100, 1e9, 20.0)],
    ids=["half", "all", "so little that memory decides"],
)
def test_what_streams_comes_at_the_disk_s_rate(streamed: int, disk: float, expected: float) -> None:
    assert wall(GIGABYTE, 20e9, streamed, disk) == pytest.approx(expected)


def test_an_unknown_disk_leaves_it_unknown() -> None:
    assert wall(GIGABYTE, 20e9, GIGABYTE // 2, None) is None
