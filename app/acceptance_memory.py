"""What was learned of each drafter of a target, kept on disk for the next start."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.paths import Paths
from decoding.acceptance import Acceptance
from models.json_file import read_object, write_object
from models.metadata.fingerprint import fingerprint

_MOST_KINDS = 1000


@dataclass(frozen=True, slots=True)
class KnownDrafter:
    """A drafter model that drafted for a target before, or was tried."""

    name: str
    path: Path


class AcceptanceMemory:
    """One file per target: counts by drafter and kind of evidence, and no text of the user's."""

    def __init__(self, target: Path, paths: Paths) -> None:
        self._path = paths.acceptance / f"{fingerprint(target)}.json"
        self._drafters: dict[str, Any] = {}
        for key, entry in read_object(self._path).items():
            if isinstance(entry, dict):
                self._drafters[key] = entry

    def recall(self, key: str) -> Acceptance:
        """What is known of a drafter, which may be nothing."""
        entry = self._drafters.get(key, {})
        return Acceptance(_counts(entry), is_trial=entry.get("trial") is True)

    def known_drafters(self) -> list[KnownDrafter]:
        """Drafter models used before whose files are still there."""
        named = ((entry.get("name"), entry.get("path")) for entry in self._drafters.values())
        found = [
            KnownDrafter(name, Path(path))
            for name, path in named
            if isinstance(name, str) and isinstance(path, str)
        ]
        return [one for one in found if _exists(one.path)]

    def remember(self, key: str, acceptance: Acceptance, facts: dict[str, Any]) -> None:
        """Take what was learned; it reaches the disk with save."""
        counts = {kind: list(pair) for kind, pair in acceptance.counts().items()}
        if counts:
            facts = {**facts, "trial": acceptance.is_trial, "counts": counts}
            self._drafters[key] = {**self._drafters.get(key, {}), **facts}

    def save(self) -> None:
        """Write the file, or leave it where that cannot be done."""
        if self._drafters:
            write_object(self._path, self._drafters)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # names no file can have
        return False


def _counts(entry: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Kinds with accepted and judged; what makes no sense is left out."""
    found: dict[str, tuple[float, float]] = {}
    counts = entry.get("counts")
    for kind, pair in list(counts.items())[:_MOST_KINDS] if isinstance(counts, dict) else ():
        try:
            accepted, judged = map(float, pair)
        except (TypeError, ValueError, OverflowError):
            continue
        if 0.0 <= accepted <= judged < math.inf:
            found[str(kind)] = (accepted, judged)
    return found
