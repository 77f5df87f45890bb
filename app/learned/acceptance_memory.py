"""Acceptance of each drafter of a target, and results of trying one, saved for the next start."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from app.learned.store import loaded_key
from app.paths import Paths
from backends.base import ModelInfo
from decoding.estimation.acceptance import Acceptance
from models.bounded_files import read_object, write_object
from models.metadata.identity import fingerprint

_MOST_KINDS = 1000


@dataclass(frozen=True, slots=True)
class KnownDrafter:
    """A drafter model that drafted for a target, or was tried, before."""

    name: str
    path: Path


class AcceptanceMemory:
    """Counts by drafter and acceptance key, in one file per target; holds no text of the user."""

    def __init__(self, target: Path, paths: Paths) -> None:
        self._path = paths.acceptance / f"{fingerprint(target)}.json"
        self._drafters: dict[str, Any] = {}
        for key, entry in read_object(self._path).items():
            if isinstance(entry, dict):
                self._drafters[key] = entry

    def recall(self, key: str) -> Acceptance:
        """Saved acceptance of a drafter; empty if there is none."""
        entry = self._drafters.get(key, {})
        return Acceptance(_counts(entry), is_trial=entry.get("trial") is True)

    def known_drafters(self) -> list[KnownDrafter]:
        """Drafter models used before whose files still exist."""
        named = ((entry.get("name"), entry.get("path")) for entry in self._drafters.values())
        drafters = [
            KnownDrafter(name, Path(path))
            for name, path in named
            if isinstance(name, str) and isinstance(path, str)
        ]
        return [drafter for drafter in drafters if _exists(drafter.path)]

    def remember(self, key: str, acceptance: Acceptance, facts: dict[str, Any]) -> None:
        """Update the acceptance of a drafter; save writes it to disk."""
        counts = {kind: list(pair) for kind, pair in acceptance.counts().items()}
        if counts:
            facts = {**facts, "trial": acceptance.is_trial, "counts": counts}
            self._drafters[key] = {**self._drafters.get(key, {}), **facts}

    def save(self) -> None:
        """Write the file; failures are ignored."""
        if self._drafters:
            write_object(self._path, self._drafters)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # not a valid file name
        return False


def _counts(entry: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Accepted and judged tokens by acceptance key; malformed entries are left out."""
    counts: dict[str, tuple[float, float]] = {}
    value = entry.get("counts")
    saved = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    for kind, pair in list(saved.items())[:_MOST_KINDS]:
        try:
            accepted, judged = map(float, pair)
        except (TypeError, ValueError, OverflowError):
            continue
        if 0.0 <= accepted <= judged < math.inf:
            counts[kind] = (accepted, judged)
    return counts


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
