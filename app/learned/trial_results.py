"""Saved results of automatic attempts to use a drafter, so that they are not repeated."""

import math
from dataclasses import asdict, dataclass
from typing import Any, cast

from app.learned.run_key import loaded_key
from app.paths import Paths
from backends.base import ModelInfo
from models.json_file import read_object, write_object

SCHEMA = 1
_MOST = 200


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of trying a drafter with a target.

    draw_cost: of one drafted token, in plain steps; None if it drafted nothing. failed: why it
    could not be used, in words. has_other_tokens: whether its vocabulary differs from the target's.
    """

    draw_cost: float | None = None
    failed: str = ""
    has_other_tokens: bool = False


class TrialResults:
    """Results of trials with a target on one engine build, device and number of threads.

    Keys include the engine, device and threads of the drafter: after a change it is tried again.
    """

    def __init__(self, info: ModelInfo, paths: Paths) -> None:
        self._path = paths.findings / f"{loaded_key(info)}.json"
        saved = read_object(self._path)
        stored: Any = saved.get("found") if saved.get("schema") == SCHEMA else None
        entries = cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
        self._results: dict[str, TrialResult] = {}
        for key, entry in list(entries.items())[-_MOST:]:
            result = _parsed(entry)
            if result is not None:
                self._results[key] = result

    def of(self, key: str | None) -> TrialResult | None:
        """Result of the drafter with a run key, None if there is none."""
        return None if key is None else self._results.get(key)

    def add(self, key: str | None, result: TrialResult) -> None:
        """Save a result in place of the previous one; without a key nothing is saved."""
        if key is None:
            return
        self._results.pop(key, None)
        self._results[key] = result
        latest = list(self._results.items())[-_MOST:]
        write_object(
            self._path,
            {"schema": SCHEMA, "found": {name: asdict(result) for name, result in latest}},
        )


def _parsed(entry: Any) -> TrialResult | None:
    """Result of an entry, None if it is malformed."""
    try:
        cost = entry["draw_cost"]
        result = TrialResult(
            None if cost is None else float(cost),
            str(entry["failed"]),
            entry["has_other_tokens"] is True,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    is_valid = result.draw_cost is None or 0.0 < result.draw_cost < math.inf
    return result if is_valid else None
