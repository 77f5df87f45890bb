"""Reads many damaged files in worker processes, which are replaced if one crashes or hangs."""

import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from tempfile import TemporaryDirectory
from typing import Protocol

from backends.base import SpecchatError

READ, REFUSED, REBUILT = "read", "refused", "rebuilt"
"""What became of a damaged file: used as it is, refused by a named error, replaced by a new one."""


class Kind(Protocol):
    """Makes, damages and reads files of one kind."""

    @property
    def name(self) -> str:
        """Name on the command line."""
        ...

    @property
    def file_name(self) -> str:
        """Name of the file in the empty folder in which it is read."""
        ...

    def samples(self, folder: Path) -> Sequence[bytes]:
        """Valid files of the kind, from specchat's own writers; folder is empty."""
        ...

    def damage(self, good: bytes, random: Random) -> bytes:
        """Damaged copy, reproducible by the state of random."""
        ...

    def read(self, path: Path) -> str:
        """Read the file as specchat does, and return the result in words.

        Raises:
            SpecchatError: the file was refused. Any other exception is a fault.
        """
        ...


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


MOST_SECONDS = 5.0
"""Processor time that a file may take."""

_PATIENCE_SECONDS = 60.0
"""Longer than a child process is given to prove a model, on a busy machine too."""

MOST_BYTES = 200 << 20
"""Memory that a file may take beyond its own size."""

_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Found:
    """Number of a file, and the result of reading it."""

    number: int
    reading: Reading


@dataclass(slots=True)
class Summary:
    """Counts of the results so far."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    faults: list[Found] = field(default_factory=list[Found])
    slowest: float = 0.0
    most_bytes: int = 0

    def add(self, found: Found) -> None:
        """Count one more file."""
        reading = found.reading
        self.outcomes[reading.outcome] += 1
        self.slowest = max(self.slowest, reading.seconds)
        self.most_bytes = max(self.most_bytes, reading.grown_bytes)
        if reading.fault:
            self.faults.append(found)


def readings(kind: Callable[[], Kind], count: int, seed: int, workers: int = 2) -> Iterator[Found]:
    """Damage and read so many files of a kind, in no order; the same files for the same seed.

    kind: makes one; a class of a module, as it is called in other processes.
    """
    numbers: SimpleQueue[int] = SimpleQueue()
    found: SimpleQueue[Found | BaseException] = SimpleQueue()
    for number in range(count):
        numbers.put(number)

    def work() -> None:
        try:
            for one in _worked(lambda: _Worker(kind, seed, Path(folder)), numbers):
                found.put(one)
        except BaseException as error:
            found.put(error)
            raise

    with TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        for _ in range(workers):
            pool.submit(work)
        for one in islice(iter(found.get, None), count):
            if isinstance(one, BaseException):
                raise one
            yield one


def _worked(start: "Callable[[], _Worker]", numbers: "SimpleQueue[int]") -> Iterator[Found]:
    worker = start()
    try:
        while True:
            try:
                number = numbers.get_nowait()
            except Empty:
                return
            yield Found(number, worker.read(number))
            if not worker.is_alive:
                worker.close()
                worker = start()
    finally:
        worker.close()


class _Worker:
    """One process, from its start to its end."""

    def __init__(self, kind: Callable[[], Kind], seed: int, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._requests, theirs = context.Pipe()
        given = (kind, seed, theirs, folder)
        self._process = context.Process(target=serve, args=given)
        self._process.start()
        theirs.close()
        self.is_alive = True
        if not self._requests.poll(_START_SECONDS):
            self._process.kill()
            raise TimeoutError(f"no worker is ready in {_START_SECONDS:.0f} s")
        self._requests.recv()

    def read(self, number: int) -> Reading:
        """What became of a file; the worker is not alive after one that ended or stopped it."""
        try:
            self._requests.send(number)
            if not self._requests.poll(_PATIENCE_SECONDS):
                self.is_alive = False
                fault = f"no end in {_PATIENCE_SECONDS:.0f} s"
                return Reading("hang", _PATIENCE_SECONDS, fault=fault)
            reading: Reading = self._requests.recv()
        except (EOFError, OSError):
            self.is_alive = False
            self._process.join()
            code = self._process.exitcode
            return Reading("crash", fault=f"the process ended with {code}")
        return _judged(reading)

    def close(self) -> None:
        """End the process, whatever it is at."""
        self._requests.close()
        self._process.join(0.0 if not self.is_alive else MOST_SECONDS)
        self._process.kill()
        self._process.join()


def _judged(reading: Reading) -> Reading:
    """The reading, with a fault where it took too long or too much."""
    if reading.fault:
        return reading
    fault = ""
    if reading.seconds > MOST_SECONDS:
        fault = f"took {reading.seconds:.1f} s"
    elif reading.grown_bytes > MOST_BYTES + reading.file_bytes:
        fault = f"took {reading.grown_bytes >> 20} MB for a file of {reading.file_bytes:,} bytes"
    return Reading(reading.outcome, reading.seconds, reading.grown_bytes, reading.file_bytes, fault)
