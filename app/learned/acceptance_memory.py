"""Acceptance of each drafter of a target, saved for the next start."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from app.paths import Paths
from decoding.estimation.acceptance import Acceptance
from models.json_file import read_object, write_object
from models.metadata.fingerprint import fingerprint

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
