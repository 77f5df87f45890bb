"""When reading ahead is allowed, by what a machine tells."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest

from app.ahead import expected as machine_readings
from app.ahead.expected import Permission, ThisMachine
from app.learned.calibrations import ProcessorTimes
from app.settings.catalogue import AHEAD_AUTO, DEFAULT_AHEAD_WASTE


@dataclass
class Machine(ThisMachine):
    """Given readings, which are counted."""

    battery: bool | None = None
    saves: bool | None = None
    others: float = 0.0
    looks: int = 0

    def is_on_battery(self) -> bool | None:
        return self.battery

    def saves_power(self) -> bool | None:
        return self.saves

    def others_share(self) -> float:
        self.looks += 1
        return self.others


@pytest.mark.parametrize(
    ("machine", "refusal"),
    [
        (Machine(), ""),
        (Machine(battery=False, saves=False), ""),
        (Machine(battery=True), "on battery"),
        (Machine(saves=True), "saving power"),
        (Machine(others=0.5), "the machine is busy"),
        (Machine(others=0.24), ""),
        (Machine(battery=True, saves=True, others=1.0), "on battery"),
    ],
)
def test_each_reason(machine: Machine, refusal: str) -> None:
    assert Permission("auto", machine=machine)() == refusal
    assert Permission("on", machine=machine)() == ""
    assert Permission("off", machine=machine)() == "switched off"


def test_the_machine_is_looked_at_once_a_second() -> None:
    machine, clock = Machine(), [100.0]
    permission = Permission("auto", machine=machine, now=lambda: clock[0])
    assert permission() == ""
    machine.battery = True
    clock[0] += 0.9
    assert permission() == ""
    clock[0] += 0.2
    assert permission() == "on battery"
    machine.battery = False
    assert [permission() for _ in range(50)] == ["on battery"] * 50
    assert machine.looks == 2


def test_a_changed_setting_holds_at_once() -> None:
    permission = Permission("auto", machine=Machine(battery=True), now=lambda: 100.0)
    assert permission() == "on battery"
    permission.setting = "on"
    assert permission() == ""
    permission.setting = "off"
    assert permission() == "switched off"


def test_the_bound_is_that_of_the_settings() -> None:
    assert Permission().most_waste() == DEFAULT_AHEAD_WASTE


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, None),
        (SimpleNamespace(power_plugged=None), None),
        (SimpleNamespace(power_plugged=True), False),
        (SimpleNamespace(power_plugged=False), True),
    ],
)
def test_a_battery(
    monkeypatch: pytest.MonkeyPatch, told: SimpleNamespace | None, expected: bool | None
) -> None:
    monkeypatch.setattr(psutil, "sensors_battery", lambda: told, raising=False)
    assert ThisMachine().is_on_battery() is expected


def test_a_system_that_tells_nothing_of_batteries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(psutil, "sensors_battery", raising=False)
    assert ThisMachine().is_on_battery() is None


def test_a_power_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profile = tmp_path / "platform_profile"
    monkeypatch.setattr(machine_readings, "_PROFILE", profile)
    assert ThisMachine().saves_power() is None
    for text, saves in (("low-power\n", True), ("balanced\n", False), ("performance", False)):
        profile.write_text(text)
        assert ThisMachine().saves_power() is saves
    profile.write_bytes(b"\xff\xfe")
    assert ThisMachine().saves_power() is None


@pytest.mark.parametrize("error", [PermissionError, RuntimeError, TypeError])
def test_a_system_that_tells_no_processor_times_is_not_busy(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where /proc is hidden; what was measured meanwhile is not thrown away either."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    permission, machine = Permission(AHEAD_AUTO, now=lambda: clock[0]), ThisMachine()
    monkeypatch.setattr(ThisMachine, "is_on_battery", lambda _: None)
    monkeypatch.setattr(ThisMachine, "saves_power", lambda _: None)
    for reading in (Mock(side_effect=error), psutil.cpu_times, Mock(side_effect=error)):
        clock[0] += 5.0
        monkeypatch.setattr(psutil, "cpu_times", reading)
        assert machine.others_share() == 0.0
        assert permission() == ""


def test_only_the_time_of_other_programs_makes_a_machine_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of four processors: one for this program, two for others, one idle; then all for this.

    Then a piece of a minute, in which this program took three of them and another the last.
    """
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    readings = iter(
        [
            ProcessorTimes(wall=0.0, idle=0.0, own=0.0),
            ProcessorTimes(wall=1.0, idle=1.0, own=1.0),
            ProcessorTimes(wall=2.0, idle=1.0, own=5.0),
            ProcessorTimes(wall=62.0, idle=1.0, own=185.0),
        ]
    )
    monkeypatch.setattr(ProcessorTimes, "now", classmethod(lambda _: next(readings)))
    machine = ThisMachine()
    assert [machine.others_share() for _ in range(4)] == [0.0, 0.5, 0.0, 0.25]
