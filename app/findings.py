"""What became of drafters that were tried unasked: the next start need not try them again."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from app.paths import Paths
from app.run_key import run_key
from backends.base import ModelInfo
from backends.engines.runner import Runner
from models.json_file import read_object, write_object

SCHEMA = 1
_MOST = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of a drafter beside a target.

    draw_cost: of one of its tokens, in plain steps, None where none was drawn. failed: why it could
    not be had, in words. has_other_tokens: its vocabulary is not the target's.
    """

    draw_cost: float | None = None
    failed: str = ""
    has_other_tokens: bool = False


class Findings:
    """One file for a target as an engine runs it on a device with so many threads.

    Another build, device or number of threads, of the target or of the drafter, has findings of its
    own: there all is tried anew.
    """

    def __init__(self, info: ModelInfo, paths: Paths) -> None:
        self._path = paths.findings / f"{run_key(info.path, info.variant, Runner.of(info))}.json"
        kept = read_object(self._path)
        entries = kept.get("found") if kept.get("schema") == SCHEMA else None
        self._found: dict[str, Finding] = {}
        for key, entry in list(entries.items())[-_MOST:] if isinstance(entries, dict) else ():
            finding = _finding(entry)
            if finding is not None:
                self._found[str(key)] = finding

    def of(self, key: str | None) -> Finding | None:
        """What was found of the drafter that a run key names, None if nothing was."""
        return None if key is None else self._found.get(key)

    def add(self, key: str | None, finding: Finding) -> None:
        """Keep what was found, in place of what was found before; without a key nothing is kept."""
        if key is None:
            return
        self._found.pop(key, None)
        self._found[key] = finding
        found = {name: asdict(one) for name, one in list(self._found.items())[-_MOST:]}
        write_object(self._path, {"schema": SCHEMA, "found": found})


def _finding(entry: Any) -> Finding | None:
    """What an entry holds, None where it makes no sense."""
    try:
        cost = entry["draw_cost"]
        found = Finding(
            None if cost is None else float(cost),
            str(entry["failed"]),
            entry["has_other_tokens"] is True,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    is_sound = found.draw_cost is None or 0.0 < found.draw_cost < math.inf
    return found if is_sound else None
