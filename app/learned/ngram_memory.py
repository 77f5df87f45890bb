"""Keeps the statistics of the ngram drafter on disk between starts.

The file is the sum of all processes: a save reads it, adds the new passages, and replaces it, all
under a lock. Two processes at once lose nothing.
"""

import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import numpy as np
from numpy.typing import NDArray

from backends.base.safe_files import (
    FILE_MODE,
    SEAL_BYTES,
    DamagedFileError,
    NotRegularError,
    OtherVersionError,
    TooLargeError,
    make_private_folder,
    read_bounded,
    seal,
    unseal,
    write_whole,
)
from decoding.drafters.ngram import ENTRY, KINDS, SLOTS, Contents, Ngram, NgramStatistics, Passage

# File of n-gram statistics of one model, with checks of its integrity.
#
# Layout, little-endian: magic (8 bytes), CRC-32 of all that follows (4), fingerprint of the model
# (24), size of its vocabulary (4), count of entries (4), tokens learned (8), counts by kind of
# guess (8 each: correct, then judged), slots of the entries (4 each), the entries (8 each).

MAGIC = b"scngram1"
_FACTS = struct.Struct("<24sIIQ")
_ENTRY = ENTRY.newbyteorder("<")
_ENTRY_BYTES = 4 + ENTRY.itemsize
_HEAD_BYTES = _FACTS.size + 2 * 8 * KINDS
"""Bytes of the body before the slots."""

MOST_BYTES = SEAL_BYTES + _HEAD_BYTES + SLOTS * _ENTRY_BYTES
"""Size of the largest file."""


class UnusableFileError(Exception):
    """A file with unusable content; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class NgramFile:
    path: Path
    fingerprint: str
    n_vocab: int

    def read(self) -> NgramStatistics | None:
        """Statistics in the file, None if there is no file.

        Raises:
            OSError: it cannot be read.
            UnusableFileError: it is damaged, of another version or of another model.
        """
        try:
            body = unseal(MAGIC, read_bounded(self.path, MOST_BYTES))
        except FileNotFoundError:
            return None
        except (NotRegularError, TooLargeError, DamagedFileError) as error:
            raise UnusableFileError("damaged") from error
        except OtherVersionError as error:
            raise UnusableFileError("of another version") from error
        if len(body) < _HEAD_BYTES:
            raise UnusableFileError("damaged")
        return self._statistics(body)

    def _statistics(self, body: memoryview) -> NgramStatistics:
        fingerprint, n_vocab, count, learned = _FACTS.unpack_from(body)
        if fingerprint != self.fingerprint.encode() or n_vocab != self.n_vocab:
            raise UnusableFileError("of another model")
        counts = np.frombuffer(body, "<f8", 2 * KINDS, _FACTS.size)
        if len(body) != _HEAD_BYTES + count * _ENTRY_BYTES or not _is_possible(counts):
            raise UnusableFileError("damaged")
        slots = np.frombuffer(body, "<u4", count, _HEAD_BYTES)
        entries = np.frombuffer(body, _ENTRY, count, _HEAD_BYTES + slots.nbytes)
        contents = Contents(slots.astype(np.uint32), entries.astype(ENTRY), learned)
        if not contents.is_sound(self.n_vocab):
            raise UnusableFileError("damaged")
        return NgramStatistics.of(contents, counts.reshape(2, KINDS))

    def write(self, statistics: NgramStatistics) -> None:
        """Replace the file atomically, readable by its owner only.

        Raises:
            OSError: it cannot be written; the old file is untouched.
        """
        contents = statistics.table.contents
        facts = (self.fingerprint.encode(), self.n_vocab, contents.slots.size, contents.learned)
        body = b"".join([
            _FACTS.pack(*facts),
            statistics.counts.astype("<f8").tobytes(),
            contents.slots.astype("<u4").tobytes(),
            contents.entries.astype(_ENTRY).tobytes(),
        ])  # fmt: skip
        write_whole(self.path, seal(MAGIC, body))

    def set_aside(self) -> None:
        """Rename an unusable file to make room for a new one; the last such file is kept.

        Raises:
            OSError: it cannot be renamed.
        """
        self.path.replace(self.path.with_suffix(".unusable"))


def _is_possible(counts: NDArray[np.float64]) -> bool:
    correct, judged = counts.reshape(2, KINDS)
    return bool(np.isfinite(judged).all() and (correct >= 0).all() and (correct <= judged).all())


SAVE_SECONDS = 60.0
"""Time between two saves of one process: each replaces a file of up to 13 MB."""

MOST_UNSAVED = 1 << 10
"""Most passages kept for the next save while saves fail."""

_LOCK_SECONDS = 2.0


class NgramMemory:
    """An ngram drafter and its file; saved in the background at the end of a reply."""

    def __init__(self, file: NgramFile, clock: Callable[[], float] = time.monotonic) -> None:
        self.note = ""
        """Why earlier statistics could not be used; empty if they could."""
        self._file = file
        self._clock = clock
        self._next_save = clock()
        self._unsaved: list[Passage] = []
        self._saving: Thread | None = None
        self.drafter = Ngram(self._loaded())

    def _loaded(self) -> NgramStatistics | None:
        statistics = "the ngram statistics of this model"
        try:
            return self._file.read()
        except UnusableFileError as error:
            self.note = (
                f"{statistics} are {error}; the file was set aside, and learning starts over"
            )
            with suppress(OSError):
                self._file.set_aside()
        except OSError as error:
            self.note = f"{statistics} cannot be read: {error.strerror or error}"
        return None

    def keep(self) -> None:
        """Save new passages in the background, at most once every SAVE_SECONDS."""
        self._unsaved += self.drafter.heard()
        del self._unsaved[:-MOST_UNSAVED]
        now = self._clock()
        is_saving = self._saving is not None and self._saving.is_alive()
        if not self._unsaved or now < self._next_save or is_saving:
            return
        self._next_save = now + SAVE_SECONDS
        passages, self._unsaved = self._unsaved, []
        self._saving = Thread(target=self._save, args=(passages,), name="ngram", daemon=True)
        self._saving.start()

    def save(self) -> None:
        if self._saving is not None:
            self._saving.join()
        if self._unsaved:
            passages, self._unsaved = self._unsaved, []
            self._save(passages)

    def _save(self, passages: Sequence[Passage]) -> None:
        """Add passages to the file; if that fails, keep them for the next save."""
        from filelock import FileLock, Timeout

        path = self._file.path
        try:
            make_private_folder(path.parent)
            with FileLock(path.with_suffix(".lock"), timeout=_LOCK_SECONDS, mode=FILE_MODE):
                statistics = self._on_disk()
                for passage in passages:
                    statistics.learn(passage)
                self._file.write(statistics)
        except (OSError, Timeout, MemoryError, NotImplementedError):  # or no locks on this disk
            self._unsaved[:0] = passages

    def _on_disk(self) -> NgramStatistics:
        try:
            return self._file.read() or NgramStatistics()
        except UnusableFileError:
            self._file.set_aside()
            return NgramStatistics()
