"""Whether the model may read ahead of the user now."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from app.settings.values import AHEAD_AUTO, AHEAD_OFF, AHEAD_ON, DEFAULT_AHEAD_WASTE, SWITCHED_OFF

if TYPE_CHECKING:
    from app.learned.calibrations import ProcessorTimes

_LOOK_SECONDS = 1.0
"""Between two looks at the machine."""

_BUSY = 0.25
"""Share of the processors taken by other programs from which the machine is busy. A guess; not
measured."""


_PROFILE = Path("/sys/firmware/acpi/platform_profile")
"""Where Linux tells the power profile that the user chose."""

_SAVING = frozenset({"low-power", "quiet"})
"""Profiles that give up speed."""


@dataclass(slots=True)
class ThisMachine:
    """Readings of the machine that this runs on; all together take less than a millisecond."""

    _before: "ProcessorTimes | None" = field(default=None, init=False)

    def is_on_battery(self) -> bool | None:
        try:
            battery = psutil.sensors_battery()
        except (AttributeError, OSError, RuntimeError, ValueError):  # not on every system
            return None
        plugged = None if battery is None else battery.power_plugged
        return None if plugged is None else not plugged

    def saves_power(self) -> bool | None:
        try:
            return _PROFILE.read_text(encoding="ascii").strip() in _SAVING
        except (OSError, ValueError):  # another system, or a machine without profiles
            return None

    def others_share(self) -> float:
        """Share since the last call, which one long piece may separate from this; 0 if just now."""
        from app.learned.calibrations import ProcessorTimes  # when it is first asked

        before, self._before = self._before, ProcessorTimes.now()
        return 0.0 if before is None else before.load_until(self._before)


class Permission:
    """Tells why nothing may be read ahead; any thread may change the settings.

    setting: one of AHEAD_CHOICES. waste: processor seconds a message that may be read in vain.
    The program's own work never makes the machine busy.
    """

    def __init__(
        self,
        setting: str = AHEAD_AUTO,
        waste: float = DEFAULT_AHEAD_WASTE,
        machine: ThisMachine | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.setting = setting
        self.waste = waste
        self._machine = machine or ThisMachine()
        self._now = now
        self._looked_at = float("-inf")
        self._refusal = ""

    def __call__(self) -> str:
        """Why nothing may be read ahead now, in words; empty if it may. For one thread."""
        if self.setting == AHEAD_OFF:
            return SWITCHED_OFF
        if self.setting == AHEAD_ON:
            return ""
        if self._now() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self._now()
            self._refusal = self._look()
        return self._refusal

    def most_waste(self) -> float:
        return self.waste

    def _look(self) -> str:
        machine = self._machine
        others = machine.others_share()  # always: it covers the time since the last look
        if machine.is_on_battery():
            return "on battery"
        if machine.saves_power():
            return "saving power"
        return "the machine is busy" if others >= _BUSY else ""
