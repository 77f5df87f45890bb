"""Measures what a model and its drafter take when both run at once, and caches it on disk."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.learned.machine_load import ProcessorTimes
from app.learned.run_key import loaded_key
from app.paths import Paths
from backends.base import ModelInfo
from decoding.overlap.both_at_once import AtOnce
from models.json_file import change_object, read_object

SCHEMA = 1

Threads = tuple[int, int]
"""Threads of the target and of the drafter while both run; (0, 0) where they are not divided."""


@dataclass(frozen=True, slots=True)
class OverlapMeasurements:
    """The cache; a file that cannot be read is measured again."""

    paths: Paths
    notify: Callable[[str], None]

    def of(
        self,
        target: ModelInfo,
        drafter: ModelInfo,
        choices: tuple[Threads, ...],
        measure: Callable[[Threads], AtOnce],
    ) -> dict[Threads, AtOnce]:
        """What both take at once, for each choice of threads; measured now if it is not known.

        Nothing where other programs ran meanwhile: it would tell of them, and is measured again at
        the next start.

        Raises:
            ContextInUseError, ModelError: as of measure.
            OSError: the files of a model are gone.
        """
        path = self._file(target, drafter)
        known = _read(read_object(path))
        if all(threads in known for threads in choices):
            return {threads: known[threads] for threads in choices}
        self.notify("measuring what drafting during verification costs here")
        before = ProcessorTimes.now()
        found = {threads: measure(threads) for threads in choices}
        if before.load_until(ProcessorTimes.now()):
            return {}
        change_object(path, lambda record: _record(_read(record) | found))
        return found

    def _file(self, target: ModelInfo, drafter: ModelInfo) -> Path:
        return self.paths.calibrations / f"{loaded_key(target)}-at-once-{loaded_key(drafter)}.json"


def _record(found: dict[Threads, AtOnce]) -> dict[str, Any]:
    factors = {f"{a}+{b}": [one.target, one.drafter] for (a, b), one in found.items()}
    return {"schema": SCHEMA, "factors": factors}


def _read(record: dict[str, Any]) -> dict[Threads, AtOnce]:
    """Parse stored factors; nothing if they are invalid."""
    found: dict[Threads, AtOnce] = {}
    try:
        if record["schema"] != SCHEMA:
            return {}
        for key, (target, drafter) in record["factors"].items():
            first, second = key.split("+")
            found[int(first), int(second)] = AtOnce(float(target), float(drafter))
    except (KeyError, AttributeError, TypeError, ValueError):
        return {}
    sound = all(
        math.isfinite(factor) and factor > 0.0
        for one in found.values()
        for factor in (one.target, one.drafter)
    )
    return found if sound else {}
