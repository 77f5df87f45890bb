"""Whether the model may read ahead of the user now."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.settings.reading_ahead import (
    AHEAD_AUTO,
    AHEAD_OFF,
    AHEAD_ON,
    DEFAULT_AHEAD_WASTE,
    SWITCHED_OFF,
)

if TYPE_CHECKING:
    from app.ahead.machine_readings import MachineReadings

_LOOK_SECONDS = 1.0
"""Between two looks at the machine."""

_BUSY = 0.25
"""Share of the processors taken by other programs from which the machine is busy. A guess; not
measured."""


class Permission:
    """Tells why nothing may be read ahead; any thread may change the settings.

    setting: one of AHEAD_CHOICES. waste: processor seconds a message that may be read in vain.
    machine: None for this one. The program's own work never makes the machine busy.
    """

    def __init__(
        self,
        setting: str = AHEAD_AUTO,
        waste: float = DEFAULT_AHEAD_WASTE,
        machine: "MachineReadings | None" = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.setting = setting
        self.waste = waste
        self._machine = machine
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
        """The bound on what is read in vain."""
        return self.waste

    def _look(self) -> str:
        if self._machine is None:
            from app.ahead.machine_readings import ThisMachine  # when it is first asked

            self._machine = ThisMachine()
        machine = self._machine
        others = machine.others_share()  # always: it covers the time since the last look
        if machine.is_on_battery():
            return "on battery"
        if machine.saves_power():
            return "saving power"
        return "the machine is busy" if others >= _BUSY else ""
