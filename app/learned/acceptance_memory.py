"""Acceptance of each drafter of a target, and results of trying one, saved for the next start."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.learned.store import Store, latest, loaded_key, number
from app.paths import Paths
from backends.base import ModelInfo
from decoding.estimation.acceptance import Acceptance
from models.bounded_files import read_object, write_object
from models.metadata.identity import fingerprint

SCHEMA = 1
"""Of results of trials."""

_MOST_KINDS, _MOST_TRIALS = 1000, 200


class AcceptanceMemory:
    """Counts by drafter and acceptance key, in one file per target; holds no text of the user."""

    def __init__(self, target: Path, paths: Paths) -> None:
        self._path = paths.acceptance / f"{fingerprint(target)}.json"
        self._drafters: dict[str, dict[str, Any]] = {
            key: entry for key, entry in read_object(self._path).items() if isinstance(entry, dict)
        }

    def recall(self, key: str) -> Acceptance:
        entry = self._drafters.get(key, {})
        counts = latest(_count, entry.get("counts"), _MOST_KINDS)
        return Acceptance(counts, is_trial=entry.get("trial") is True)

    def known_drafters(self) -> list[tuple[str, Path]]:
        """Names and files of drafter models used before, of which the files still exist."""
        named = ((entry.get("name"), entry.get("path")) for entry in self._drafters.values())
        return [
            (name, Path(path))
            for name, path in named
            if isinstance(name, str) and isinstance(path, str) and _exists(Path(path))
        ]

    def remember(self, key: str, acceptance: Acceptance, facts: dict[str, Any]) -> None:
        """Update the acceptance of a drafter; save writes it to disk."""
        counts = {kind: list(pair) for kind, pair in acceptance.counts().items()}
        if counts:
            facts = {**facts, "trial": acceptance.is_trial, "counts": counts}
            self._drafters[key] = {**self._drafters.get(key, {}), **facts}

    def save(self) -> None:
        if self._drafters:
            write_object(self._path, self._drafters)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # not a valid file name
        return False


def _count(pair: Any) -> tuple[float, float]:
    accepted, judged = map(number, pair)
    if accepted > judged:
        raise ValueError
    return accepted, judged


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of trying a drafter with a target, so that a failed attempt is not repeated.

    draw_cost: of one drafted token, in plain steps; None if it drafted nothing. failed: why it
    could not be used, in words.
    """

    draw_cost: float | None = None
    failed: str = ""


class TrialResults:
    """Results of trials with a target on one engine build, device and number of threads.

    Keys include the engine, device and threads of the drafter: after a change it is tried again.
    """

    def __init__(self, info: ModelInfo, paths: Paths) -> None:
        self._store = Store(paths.findings / f"{loaded_key(info)}.json", SCHEMA, _trials, _record)
        self._results = self._store.read() or {}

    def of(self, key: str | None) -> TrialResult | None:
        return None if key is None else self._results.get(key)

    def add(self, key: str | None, result: TrialResult) -> None:
        """Save a result in place of the previous one; without a key nothing is saved."""
        if key is not None:
            self._results.pop(key, None)
            self._results[key] = result
            self._store.write(self._results)


def _record(results: dict[str, TrialResult]) -> dict[str, Any]:
    kept = [*results.items()][-_MOST_TRIALS:]
    return {"found": {key: asdict(result) for key, result in kept}}


def _trials(value: dict[str, Any]) -> dict[str, TrialResult]:
    return latest(_trial, value["found"], _MOST_TRIALS)


def _trial(entry: Any) -> TrialResult:
    cost = entry["draw_cost"]
    return TrialResult(
        None if cost is None else number(cost, is_positive=True), str(entry["failed"])
    )
