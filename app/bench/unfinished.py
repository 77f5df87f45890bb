"""What a bench that was ended has measured, so that the same bench goes on with it."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.bench.results import Run, run_of
from backends.base.safe_files import make_private_folder, private_opener


@dataclass(frozen=True, slots=True)
class Measured:
    """All methods' runs of one question, and the seconds that the bench had taken after it."""

    runs: tuple[Run, ...]
    elapsed: float


class Unfinished:
    """A file of one bench: a JSON line for each question that all methods have answered.

    No line has a text; without a folder nothing is kept.
    """

    def __init__(self, folder: Path | None, facts: Mapping[str, Any]) -> None:
        """facts: all that two runs of a bench must have in common."""
        text = json.dumps(facts, sort_keys=True, default=str)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._file = folder / f"{name}.jsonl" if folder else None

    def measured(self) -> Iterator[Measured]:
        """What is there, without a line that was not written to its end."""
        lines = list[str]()
        with suppress(OSError, ValueError):
            lines = self._file.read_text(encoding="utf-8").split("\n") if self._file else []
        for line in lines:
            with suppress(ValueError, TypeError, KeyError):
                value = json.loads(line)
                yield Measured(tuple(map(run_of, value["runs"])), float(value["elapsed"]))

    def add(self, runs: Sequence[Run], elapsed: float) -> None:
        """Keep what was measured; a failure is ignored, as the figures are in memory too."""
        if self._file is None:
            return
        line = json.dumps({"elapsed": elapsed, "runs": [asdict(run) for run in runs]})
        with suppress(OSError):
            make_private_folder(self._file.parent)
            with open(self._file, "a", encoding="utf-8", opener=private_opener) as file:
                file.write(f"\n{line}")  # before it may stand a half-written one

    def remove(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)
