"""The file of n-gram statistics: of which model they are, then the entries; all checked.

Layout, little-endian: magic (8 bytes), CRC-32 of all that follows (4), fingerprint of the model
(24), size of its vocabulary (4), count of entries (4), tokens learned (8), counts by kind of guess
(8 each, came true and then judged), slots of the entries (4 each), the entries (8 each).
"""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.base.private_file import write_whole_bytes
from backends.base.regular_file import NotRegularError, TooLargeError, read_bounded
from decoding.ngram_statistics import KINDS, NgramStatistics
from decoding.ngram_table import ENTRY, SLOTS, Contents

MAGIC = b"scngram1"
"""The last character is the version of the format."""

_CHECKED = struct.Struct("<8sI")
_FACTS = struct.Struct("<24sIIQ")
_ENTRY = ENTRY.newbyteorder("<")
_ENTRY_BYTES = 4 + ENTRY.itemsize
_HEAD_BYTES = _CHECKED.size + _FACTS.size + 2 * 8 * KINDS

MOST_BYTES = _HEAD_BYTES + SLOTS * _ENTRY_BYTES
"""Of the largest file."""


class UnusableFileError(Exception):
    """A file is there and holds nothing that can be used; the text says why."""


@dataclass(frozen=True, slots=True)
class NgramFile:
    """Where statistics of one model are kept. fingerprint: 24 characters that tell it apart."""

    path: Path
    fingerprint: str
    n_vocab: int

    def read(self) -> NgramStatistics | None:
        """What the file holds, None where there is none.

        Raises:
            OSError: it cannot be read.
            UnusableFileError: it is damaged, of another version or of another model.
        """
        try:
            data = read_bounded(self.path, MOST_BYTES)
        except FileNotFoundError:
            return None
        except (NotRegularError, TooLargeError) as error:
            raise UnusableFileError("damaged") from error
        if data[: len(MAGIC)] != MAGIC:
            is_ours = len(data) >= len(MAGIC) and data.startswith(MAGIC[:-1])
            raise UnusableFileError("of another version" if is_ours else "damaged")
        if len(data) < _HEAD_BYTES or zlib.crc32(memoryview(data)[_CHECKED.size :]) != _crc(data):
            raise UnusableFileError("damaged")
        return self._statistics(data)

    def _statistics(self, data: bytes) -> NgramStatistics:
        fingerprint, n_vocab, count, learned = _FACTS.unpack_from(data, _CHECKED.size)
        if fingerprint != self.fingerprint.encode() or n_vocab != self.n_vocab:
            raise UnusableFileError("of another model")
        counts = np.frombuffer(data, "<f8", 2 * KINDS, _CHECKED.size + _FACTS.size)
        if len(data) != _HEAD_BYTES + count * _ENTRY_BYTES or not _is_possible(counts):
            raise UnusableFileError("damaged")
        slots = np.frombuffer(data, "<u4", count, _HEAD_BYTES)
        entries = np.frombuffer(data, _ENTRY, count, _HEAD_BYTES + slots.nbytes)
        contents = Contents(slots.astype(np.uint32), entries.astype(ENTRY), learned)
        if not contents.is_sound(self.n_vocab):
            raise UnusableFileError("damaged")
        return NgramStatistics.of(contents, counts.reshape(2, KINDS))

    def write(self, statistics: NgramStatistics) -> None:
        """Replace the file whole, readable by its owner alone.

        Raises:
            OSError: it cannot be written; the file is as it was.
        """
        found = statistics.table.contents
        facts = (self.fingerprint.encode(), self.n_vocab, found.slots.size, found.learned)
        body = b"".join([
            _FACTS.pack(*facts),
            statistics.counts.astype("<f8").tobytes(),
            found.slots.astype("<u4").tobytes(),
            found.entries.astype(_ENTRY).tobytes(),
        ])  # fmt: skip
        write_whole_bytes(self.path, _CHECKED.pack(MAGIC, zlib.crc32(body)) + body)

    def set_aside(self) -> None:
        """Give way to a new file; what was there is kept beside it, once.

        Raises:
            OSError: it cannot be renamed.
        """
        self.path.replace(self.path.with_suffix(".unusable"))


def _crc(data: bytes) -> int:
    return _CHECKED.unpack_from(data)[1]


def _is_possible(counts: NDArray[np.float64]) -> bool:
    came_true, judged = counts.reshape(2, KINDS)
    return bool(
        np.isfinite(judged).all() and (came_true >= 0).all() and (came_true <= judged).all()
    )
