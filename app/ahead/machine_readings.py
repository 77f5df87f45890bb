"""What the system tells of power and load, as far as it is cheap to ask."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from app.learned.machine_load import ProcessorTimes

_PROFILE = Path("/sys/firmware/acpi/platform_profile")
"""Where Linux tells the power profile that the user chose."""

_SAVING = frozenset({"low-power", "quiet"})
"""Profiles that give up speed."""


class MachineReadings(Protocol):
    """Power and load of a machine at this moment."""

    def is_on_battery(self) -> bool | None:
        """Whether it runs on its battery, None if unknown."""
        ...

    def saves_power(self) -> bool | None:
        """Whether the user chose to save power, None if unknown."""
        ...

    def others_share(self) -> float:
        """Share of the processors that other programs took lately, 0 if negligible or unknown."""
        ...


@dataclass(slots=True)
class ThisMachine:
    """Readings of the machine that this runs on; all together take less than a millisecond."""

    _before: ProcessorTimes | None = field(default=None, init=False)

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
        before, self._before = self._before, ProcessorTimes.now()
        return 0.0 if before is None else before.load_until(self._before)
