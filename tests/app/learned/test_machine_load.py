"""Load of other programs, from processor times."""

import pytest

from app.learned.calibrations import ProcessorTimes


@pytest.mark.parametrize(
    ("later", "load"),
    [
        (ProcessorTimes(wall=2.0, idle=0.0, own=4.0), 0.0),
        (ProcessorTimes(wall=2.0, idle=2.0, own=2.0), 0.0),
        (ProcessorTimes(wall=2.0, idle=1.8, own=2.0), 0.0),  # negligible
        (ProcessorTimes(wall=2.0, idle=0.0, own=2.0), 0.5),
        (ProcessorTimes(wall=0.1, idle=0.0, own=0.0), 0.0),  # too short to tell
    ],
)
def test_load_is_neither_idle_nor_our_own(
    monkeypatch: pytest.MonkeyPatch, later: ProcessorTimes, load: float
) -> None:
    monkeypatch.setattr("psutil.cpu_count", lambda: 2)
    assert ProcessorTimes(0.0, 0.0, 0.0).load_until(later) == pytest.approx(load)


def test_the_clocks_of_this_machine_never_run_backwards() -> None:
    before = ProcessorTimes.now()
    after = ProcessorTimes.now()
    assert (after.wall >= before.wall, after.own >= before.own) == (True, True)
