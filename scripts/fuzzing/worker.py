"""Worker process that damages and reads files one by one, and may crash on any."""

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from backends.base import SpecchatError
from scripts.fuzzing.kind import REFUSED, Kind

_MEMORY = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of reading one damaged file."""

    outcome: str
    seconds: float = 0.0
    """Of the processor's time: other programs do not count."""
    grown_bytes: int = 0
    """Memory at its highest while the file was read, over what it was before; 0 off Linux."""
    file_bytes: int = 0
    fault: str = ""
    """Why this may not happen; empty where all is well."""


def serve(make: Callable[[], Kind], seed: int, requests: Connection, folder: Path) -> None:
    """Say None when ready, then read the files asked for by number until the other end closes.

    folder: for what is written; what a process that dies leaves there is the caller's to remove.
    """
    kind = make()
    with TemporaryDirectory(dir=folder) as made:
        samples = kind.samples(Path(made))
    requests.send(None)
    while True:
        try:
            number = requests.recv()
        except EOFError:
            return
        requests.send(_reading(kind, damaged_file(kind, samples, seed, number), folder))


def damaged_file(kind: Kind, samples: Sequence[bytes], seed: int, number: int) -> bytes:
    """Damaged file by its number in the campaign of a seed."""
    random = Random(f"{kind.name} {seed} {number}")
    return kind.damage(random.choice(samples), random)


def _reading(kind: Kind, data: bytes, folder: Path) -> Reading:
    with TemporaryDirectory(dir=folder) as own:
        path = Path(own, kind.file_name)
        path.write_bytes(data)
        before, started = _start_of_memory(), time.process_time()
        outcome, fault = _outcome(kind, path)
        seconds = time.process_time() - started
        return Reading(outcome, seconds, _highest_memory() - before, len(data), fault)


def _outcome(kind: Kind, path: Path) -> tuple[str, str]:
    try:
        return kind.read(path), ""
    except SpecchatError as error:
        return REFUSED, "" if str(error).strip() else f"a {type(error).__name__} without words"
    except Exception:
        return "exception", traceback.format_exc()


def _start_of_memory() -> int:
    """Reset the peak of resident memory, and return its present bytes."""
    if sys.platform != "linux":
        return 0
    _RESET.write_text("5", encoding="ascii")
    return _highest_memory()


def _highest_memory() -> int:
    if sys.platform != "linux":
        return 0
    line = next(one for one in _MEMORY.read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) << 10
