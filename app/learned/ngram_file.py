"""File of n-gram statistics of one model, with checks of its integrity.

Layout, little-endian: magic (8 bytes), CRC-32 of all that follows (4), fingerprint of the model
(24), size of its vocabulary (4), count of entries (4), tokens learned (8), counts by kind of guess
(8 each: correct, then judged), slots of the entries (4 each), the entries (8 each).
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.base.atomic_file import write_whole
from backends.base.checked_file import (
    SEAL_BYTES,
    DamagedFileError,
    OtherVersionError,
    seal,
    unseal,
)
from backends.base.regular_file import NotRegularError, TooLargeError, read_bounded
from decoding.drafters.ngram.ngram_statistics import KINDS, NgramStatistics
from decoding.drafters.ngram.ngram_table import ENTRY, SLOTS, Contents

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
    """Statistics of one model on disk. fingerprint: 24 characters that identify the model."""

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
