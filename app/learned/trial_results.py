"""Saved results of automatic attempts to use a drafter, so that they are not repeated."""

import math
from dataclasses import asdict, dataclass
from typing import Any, cast

from app.learned.run_key import run_key
from app.paths import Paths
from backends.base import ModelInfo
from backends.engines.runner import Runner
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
    """Findings of a target with one engine build, device and number of threads, in one file.

    Keys name the drafter's own: after a change of either, drafters are tried again.
    """

    def __init__(self, info: ModelInfo, paths: Paths) -> None:
        self._path = paths.findings / f"{run_key(info.path, info.variant, Runner.of(info))}.json"
        saved = read_object(self._path)
        found: Any = saved.get("found") if saved.get("schema") == SCHEMA else None
        entries = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        self._findings: dict[str, TrialResult] = {}
        for key, entry in list(entries.items())[-_MOST:]:
            finding = _parsed(entry)
            if finding is not None:
                self._findings[key] = finding

    def of(self, key: str | None) -> TrialResult | None:
        """Finding of the drafter with a run key, None if there is none."""
        return None if key is None else self._findings.get(key)

    def add(self, key: str | None, finding: TrialResult) -> None:
        """Save a finding in place of the previous one; without a key nothing is saved."""
        if key is None:
            return
        self._findings.pop(key, None)
        self._findings[key] = finding
        entries = {name: asdict(one) for name, one in list(self._findings.items())[-_MOST:]}
        write_object(self._path, {"schema": SCHEMA, "found": entries})


def _parsed(entry: Any) -> TrialResult | None:
    """The finding of an entry, None if it is malformed."""
    try:
        cost = entry["draw_cost"]
        finding = TrialResult(
            None if cost is None else float(cost),
            str(entry["failed"]),
            entry["has_other_tokens"] is True,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    is_valid = finding.draw_cost is None or 0.0 < finding.draw_cost < math.inf
    return finding if is_valid else None
