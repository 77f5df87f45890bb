"""Processor time that other programs take while something is measured."""

import time
from dataclasses import dataclass
from math import nan
from typing import Self

import psutil

_NEGLIGIBLE = 0.1
"""Share of the processors that a desktop's background work takes."""

_SHORTEST = 0.2
"""Seconds; systems count processor time in steps too coarse for less."""


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Processor seconds spent so far: idle ones of the machine, and those of this process."""

    wall: float
    idle: float
    own: float

    @classmethod
    def now(cls) -> Self:
        """Read the clocks; idle is not a number where the system does not tell it."""
        try:
            times = psutil.cpu_times()
            idle = times.idle + getattr(times, "iowait", 0.0)
        except Exception:  # psutil promises none: /proc may be hidden, or another's
            idle = nan
        return cls(time.monotonic(), idle, time.process_time())

    def load_until(self, later: "ProcessorTimes") -> float:
        """Share of the processors that other programs took since, 0 if negligible or unknown."""
        wall = later.wall - self.wall
        available = wall * (psutil.cpu_count() or 1)
        if wall < _SHORTEST:
            return 0.0
        others = available - (later.idle - self.idle) - (later.own - self.own)
        share = min(others / available, 1.0)
        return share if share > _NEGLIGIBLE else 0.0
