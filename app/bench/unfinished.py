"""What a bench that was ended has measured, so that the same bench goes on with it."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from app.bench.results import Run
from backends.base.safe_files import make_private_folder, private_opener

_RUNS = TypeAdapter(list[Run])


class Unfinished:
    """A file of one bench, without texts: a JSON line for each question that all answered."""

    def __init__(self, folder: Path | None, facts: Mapping[str, Any]) -> None:
        """folder: None to keep nothing. facts: all that two runs of it must have in common."""
        text = json.dumps(facts, sort_keys=True, default=str)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._file = folder / f"{name}.jsonl" if folder else None

    def runs(self) -> Iterator[Run]:
        """What is there, without a line that was not written to its end."""
        lines = list[bytes]()
        with suppress(OSError):
            lines = self._file.read_bytes().split(b"\n") if self._file else []
        for line in lines:
            with suppress(ValidationError):
                yield from _RUNS.validate_json(line)

    def add(self, runs: list[Run]) -> None:
        """Keep what was measured; a failure is ignored, as the figures are in memory too."""
        if self._file is None:
            return
        with suppress(OSError):
            make_private_folder(self._file.parent)
            with open(self._file, "ab", opener=private_opener) as file:
                file.write(b"\n" + _RUNS.dump_json(runs))  # before it may be a half-written one

    def remove(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)
