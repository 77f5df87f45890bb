"""Processor time of reading ahead: what replies used, and what was read in vain."""

import math
from dataclasses import dataclass
from typing import Any, Self

from app.paths import Paths
from models.json_file import change_object, read_object

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class AheadTime:
    """Processor seconds of reading ahead: of text that was then asked, and of text that was not."""

    used: float = 0.0
    wasted: float = 0.0

    @classmethod
    def kept(cls, paths: Paths) -> Self:
        """Totals of all sessions; zeros if none are kept."""
        return cls._parsed(read_object(paths.read_ahead))

    def __add__(self, other: "AheadTime") -> "AheadTime":
        return AheadTime(self.used + other.used, self.wasted + other.wasted)

    def keep(self, paths: Paths) -> None:
        """Add these seconds to the totals; a failure to write is ignored."""
        if self.used <= 0.0 and self.wasted <= 0.0:
            return

        def added(value: dict[str, Any]) -> dict[str, Any]:
            before = self._parsed(value)
            return {
                "schema": SCHEMA,
                "used_seconds": before.used + self.used,
                "wasted_seconds": before.wasted + self.wasted,
            }

        change_object(paths.read_ahead, added)

    @classmethod
    def _parsed(cls, value: dict[str, Any]) -> Self:
        if value.get("schema") != SCHEMA:
            return cls()
        return cls(_seconds(value.get("used_seconds")), _seconds(value.get("wasted_seconds")))


def _seconds(value: object) -> float:
    try:
        seconds = float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:  # of a huge integer
        return 0.0
    return seconds if 0.0 <= seconds < math.inf else 0.0
