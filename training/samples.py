"""Answers of a target with what it computed on the way, on disk, for training to read."""

import json
import os
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from backends.base import DiskFullError, ModelError, UsageError
from backends.base.safe_files import (
    make_private_folder,
    open_regular,
    private_opener,
    read_text,
    sync_file,
    write_whole,
)

LIKELY = 64
"""Likeliest next tokens kept after each token: the teacher's distribution, all but its tail."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and the target's answer: T tokens, all of which the target has read.

    id: of prompt and draw. kind: of the prompt. temperature: that the answer was sampled at.
    tokens: (T,) int32. first: number of the prompt's. states: (T, S, d) float32, for each token the
    inputs of the tapped layers, if any, and the last normed state. likely: (T, LIKELY) int32, the
    likeliest next tokens after each token, the likeliest first, and logs: (T, LIKELY) float32,
    their log-probabilities in the whole vocabulary at temperature 1; both undefined before
    first - 1. is_private: whether a chat of the user's is in it.
    """

    id: str
    kind: str
    temperature: float
    tokens: NDArray[np.int32]
    first: int
    states: NDArray[np.float32]
    likely: NDArray[np.int32]
    logs: NDArray[np.float32]
    is_private: bool = False


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """What samples can be used for.

    target: fingerprint. template: digest. taps: numbers of the layers whose inputs are kept; none
    if only the last state is. width: of a state.
    """

    target: str
    engine: str
    template: str
    taps: tuple[int, ...]
    width: int
    n_vocab: int

    @property
    def states(self) -> int:
        return len(self.taps) + 1

    def n_bytes(self, tokens: int, first: int) -> int:
        """Bytes of a sample of so many tokens, of which first are the prompt's."""
        return tokens * (4 + 2 * self.states * self.width) + (tokens - first + 1) * LIKELY * 6


@dataclass(frozen=True, slots=True)
class _Row:
    """Where a sample lies: its line of the index."""

    id: str
    kind: str
    temperature: float
    length: int
    first: int
    is_private: bool
    start: int


_VERSION = 1
_MOST_FACTS, _MOST_INDEX = 1 << 16, 1 << 28
_FILES = _FACTS, _INDEX, _DATA = "facts.json", "index.jsonl", "samples.bin"


class SampleCache:
    """A folder of samples: one file, and an index whose line is written once a sample is on disk.

    A killed process leaves whole samples: what follows the last whole line is written over. One
    process may add while others read what was there when they opened it.
    """

    def __init__(self, folder: Path, facts: CacheFacts, most_bytes: int) -> None:
        self.folder, self.facts, self.most_bytes = folder, facts, most_bytes
        self._index_bytes = self._end = 0
        self.tokens = 0
        """Of all answers."""
        self._rows = dict[str, _Row]()
        """By id, in order."""
        for line, row in self._read():
            self._count(line, row)

    @classmethod
    def open(cls, folder: Path, facts: CacheFacts, most_bytes: int = 1 << 40) -> Self:
        """Open a folder, or begin one. most_bytes: that samples may take.

        Raises:
            UsageError: it is of another target, engine, template, or other layers.
            DiskFullError: it cannot be written.
        """
        path = folder / _FACTS
        wanted = json.loads(json.dumps({"version": _VERSION, **asdict(facts)}))
        try:
            if not path.exists():
                make_private_folder(folder)
                write_whole(path, json.dumps(wanted))
            found = json.loads(read_text(path, _MOST_FACTS))
        except ValueError:
            found = dict[str, Any]()
        except OSError as error:
            raise DiskFullError("samples cannot be kept", str(error)) from error
        if found != wanted:
            differing = [name for name in wanted if found.get(name) != wanted[name]]
            raise UsageError(
                f"the samples in {folder} cannot be used",
                f"they differ in {', '.join(differing)}",
                "Remove them to begin anew.",
            )
        return cls(folder, facts, most_bytes)

    def _read(self) -> Iterator[tuple[bytes, _Row]]:
        """Lines of whole samples."""
        with suppress(FileNotFoundError):
            size = (self.folder / _DATA).stat().st_size
            lines = read_text(self.folder / _INDEX, _MOST_INDEX).splitlines(keepends=True)
            for line in lines:
                try:
                    row = _Row(**json.loads(line))
                    end = row.start + self.facts.n_bytes(row.length, row.first)
                except (ValueError, TypeError):
                    return
                if not line.endswith("\n") or end > size:
                    return
                yield line.encode(), row

    def _count(self, line: bytes, row: _Row) -> None:
        self._index_bytes += len(line)
        self._rows[row.id] = row
        self._end = row.start + self.facts.n_bytes(row.length, row.first)
        self.tokens += row.length - row.first

    def add(self, sample: Sample) -> bool:
        """Add a sample, whole or not at all; False if there is no room for it.

        Raises:
            ModelError: its states are not finite.
            DiskFullError: it cannot be written.
        """
        if not np.isfinite(sample.states).all():
            raise ModelError("the model cannot be learnt from", "its states are not finite")
        length, start = len(sample.tokens), self._end
        if self.n_bytes + self.facts.n_bytes(length, sample.first) > self.most_bytes:
            return False
        assert sample.states.shape == (length, self.facts.states, self.facts.width)
        assert sample.likely.shape == sample.logs.shape == (length, LIKELY)
        shown = slice(sample.first - 1, None)
        data = b"".join([
            sample.tokens.astype("<i4").tobytes(),
            sample.likely[shown].astype("<i4").tobytes(),
            sample.logs[shown].astype("<f2").tobytes(),
            _rounded(sample.states).tobytes(),
        ])  # fmt: skip
        row = _Row(
            sample.id, sample.kind, sample.temperature, length, sample.first, sample.is_private,
            start,
        )  # fmt: skip
        line = (json.dumps(asdict(row)) + "\n").encode()
        try:
            self._write(_DATA, start, data)
            self._write(_INDEX, self._index_bytes, line)
        except OSError as error:
            raise DiskFullError("a sample cannot be kept", str(error)) from error
        self._count(line, row)
        return True

    def _write(self, name: str, start: int, data: bytes) -> None:
        """Write at a place of a file, and wait until the disk has it; nothing follows it then."""
        path = self.folder / name
        with open(path, "ab", opener=private_opener):
            pass
        with open(path, "r+b") as file:
            file.truncate(start)
            file.seek(start)
            file.write(data)
            sync_file(file)

    def __len__(self) -> int:
        return len(self._rows)

    def sample(self, number: int) -> Sample:
        """Read one. Raises OSError, ModelError: its file is gone or too short."""
        row, facts = list(self._rows.values())[number], self.facts
        shown = row.length - row.first + 1
        with open_regular(self.folder / _DATA) as file:
            file.seek(row.start)
            data = file.read(facts.n_bytes(row.length, row.first))
        if len(data) < facts.n_bytes(row.length, row.first):
            raise ModelError(f"the samples in {self.folder} are damaged", "a file is too short")
        at = 0

        def take(dtype: str, *shape: int) -> NDArray[Any]:
            nonlocal at
            start, count = at, int(np.prod(shape))
            at += count * np.dtype(dtype).itemsize
            return np.frombuffer(data, dtype, count, start).reshape(shape)

        likely = np.zeros((row.length, LIKELY), np.int32)
        logs = np.zeros((row.length, LIKELY), np.float32)
        tokens = take("<i4", row.length)
        likely[row.first - 1 :] = take("<i4", shown, LIKELY)
        logs[row.first - 1 :] = take("<f2", shown, LIKELY)
        states = take("<u2", row.length, facts.states, facts.width).astype(np.uint32) << 16
        return Sample(
            row.id, row.kind, row.temperature, tokens, row.first, states.view(np.float32),
            likely, logs, row.is_private,
        )  # fmt: skip

    @property
    def n_bytes(self) -> int:
        return self._end + self._index_bytes

    @property
    def done(self) -> Set[str]:
        """Ids of the samples that are in."""
        return self._rows.keys()

    def delete(self) -> None:
        """Remove the samples, which are text; the folder too, if nothing else is in it."""
        self._rows.clear()
        self._index_bytes = self._end = self.tokens = 0
        for name in reversed(_FILES):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            os.rmdir(self.folder)


def _rounded(states: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Bits as bfloat16, to the nearest, to even at half: half floats would overflow (outliers)."""
    bits = np.ascontiguousarray(states, "<f4").view("<u4")
    return cast("NDArray[np.uint16]", ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2"))
