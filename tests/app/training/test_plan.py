"""What training costs, what it has to reach on a curve, and when it is refused before it starts."""

from dataclasses import replace

import pytest

from app.training.plan import Measured, Method, Plan, in_words, needed, planned, usual
from backends.base import DiskFullError, OutOfMemoryError, UsageError
from decoding.estimation import cost

Q8_OF_1B = {1: 1.0, 2: 1.44, 4: 1.9, 8: 3.1, 16: 5.6}
"""Relative seconds of passes: a 1.1B Q8_0 on two cores is near it. Flat: a GPU."""
FLAT = {1: 1.0, 2: 1.01, 4: 1.06, 8: 1.1, 16: 1.2}
STEEP = {1: 1.0, 2: 2.2, 4: 4.4, 8: 8.8, 16: 17.6}

HERE = Measured(
    answers=250.0, width=16, step_seconds=4.0, step_tokens=4096, plain=100.0, draw=0.1,
    token_bytes=5_000, kept_bytes=100_000_000, memory_bytes=1_000_000_000,
    free_disk=100_000_000_000, free_memory=8_000_000_000,
)  # fmt: skip


def costs(curve: dict[int, float]) -> cost.CostModel:
    return cost.CostModel(cost.Measured(curve))


def plan(curve: dict[int, float], minutes: float = 120.0, here: Measured = HERE) -> Plan:
    return planned(Method.EAGLE3, minutes, here, costs(curve))


@pytest.mark.parametrize("curve", [Q8_OF_1B, FLAT])
def test_what_is_needed_breaks_even_and_no_other_length_asks_for_less(
    curve: dict[int, float],
) -> None:
    found = needed(costs(curve), 0.1)
    assert found is not None
    total = sum(found.each**place for place in range(1, found.length + 1))
    assert total == pytest.approx(found.total, abs=1e-3)
    for length in range(1, 16):
        kept = sum((found.each - 1e-3) ** place for place in range(1, length + 1))
        assert kept < costs(curve).of_draft(length) + length * 0.1


def test_where_passes_grow_faster_than_drafts_nothing_is_enough() -> None:
    assert needed(costs(STEEP), 0.1) is None
    assert not plan(STEEP).pays
    assert "nothing does" in "\n".join(in_words(plan(STEEP)))


def test_it_pays_on_a_flat_curve_only() -> None:
    assert plan(FLAT).pays
    assert plan(FLAT).expected.speedup > 1.3
    assert not plan(Q8_OF_1B, minutes=10).pays


def test_the_estimate_is_what_was_reported() -> None:
    assert usual(340_000, 0) == pytest.approx(0.51)
    assert usual(680_000, 0) == pytest.approx(0.54)
    assert usual(1 << 60, 0) == 0.8
    assert usual(1, 0) == 0.0


def test_a_plan_fits_into_its_time() -> None:
    for minutes in (10.0, 60.0, 600.0):
        one = plan(FLAT, minutes)
        assert sum(one.seconds.values()) == pytest.approx(60 * minutes, rel=0.1)


@pytest.mark.parametrize("curve", [Q8_OF_1B, FLAT, STEEP])
def test_with_little_time_the_test_has_fewer_prompts(curve: dict[int, float]) -> None:
    short, long = plan(curve, 3.0), plan(curve, 600.0)
    assert 2 <= short.tested < 6
    assert long.tested == 60
    assert sum(short.seconds.values()) <= 1.01 * 180


def test_too_little_time_is_told_with_what_is_enough() -> None:
    with pytest.raises(UsageError, match=r"0\.5 min are too few") as refused:
        plan(FLAT, 0.5, replace(HERE, step_seconds=8.0))
    enough = float(str(refused.value.remedy).rpartition(" ")[2])
    one = plan(FLAT, enough, replace(HERE, step_seconds=8.0))
    assert sum(one.seconds.values()) <= 60 * enough


def test_the_disk_bounds_the_data() -> None:
    assert plan(FLAT, 600, replace(HERE, free_disk=1_000_000_000)).disk_bytes <= 500_000_000


def test_too_little_room_is_told_before_anything_starts() -> None:
    with pytest.raises(DiskFullError, match="too little disk") as disk:
        plan(FLAT, here=replace(HERE, free_disk=150_000_000))
    assert "150.0 MB are free" in disk.value.why
    with pytest.raises(OutOfMemoryError) as memory:
        plan(FLAT, here=replace(HERE, free_memory=500_000_000))
    assert memory.value.why == "it takes 1.0 GB; 0.5 GB are free"
