"""Rates and remaining times, by a clock that the test moves."""

from models.hub.progress import Meter, Phase


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    meter = Meter(Phase.RECEIVING, 10_000, done=1_000, clock=clock)
    first = meter.add(0)
    assert (first.done_bytes, first.bytes_per_second, first.remaining_seconds) == (
        1_000,
        None,
        None,
    )
    for _ in range(100):
        clock.now += 1.0
        meter.add(10)
    progress = meter.add(0)
    assert (progress.done_bytes, progress.total_bytes) == (2_000, 10_000)
    assert progress.bytes_per_second == 10.0
    assert progress.remaining_seconds == 800.0
    for _ in range(1_000):
        clock.now += 0.01
        progress = meter.add(5)
    assert progress.bytes_per_second is not None
    assert abs(progress.bytes_per_second - 500.0) < 1.0


def test_waiting_is_not_counted_into_the_rate() -> None:
    clock = Clock()
    meter = Meter(Phase.RECEIVING, 10_000, clock=clock)
    clock.now += 1.0
    meter.add(1_000)
    waiting = meter.waiting()
    assert (waiting.phase, waiting.done_bytes) == (Phase.WAITING, 1_000)
    clock.now += 60.0
    meter.waiting()
    clock.now += 1.0
    assert meter.add(500).bytes_per_second == 500.0


def test_bytes_that_are_taken_back_leave_no_negative_rate() -> None:
    clock = Clock()
    meter = Meter(Phase.RECEIVING, 10_000, clock=clock)
    clock.now += 1.0
    meter.add(4_000)
    clock.now += 1.0
    back = meter.add(-4_000)
    assert (back.done_bytes, back.bytes_per_second) == (0, None)
    clock.now += 1.0
    assert meter.add(100).bytes_per_second == 100.0
