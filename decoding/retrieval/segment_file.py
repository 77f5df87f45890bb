"""The file of a segment: documents in one vocabulary, and the order of their suffixes.

Layout: head, table of documents, checksum of both, text, order, samples. The text is reversed, so
that the tokens before a position follow it, and big-endian, so that bytes sort like tokens; the
rest has the machine's byte order, which the head records. The samples are the DEPTH tokens at every
SPACING-th entry of the order, so that a search begins in memory.
"""

import os
import struct
import zlib
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.base.private_file import private_opener, temporary_beside
from backends.base.regular_file import open_regular
from decoding.retrieval.document import STAMP_BYTES, Document
from decoding.retrieval.suffix_order import suffix_order

SUFFIX = ".segment"
DEPTH = 16
"""Number of tokens by which positions are sorted, and so the longest match."""

BOUNDARY = 0xFFFF_FFFF
"""Separator of documents in the text; no token."""

SPACING = 128
TOKEN_BYTES = 4
KEY_BYTES = TOKEN_BYTES * DEPTH
_FAMILY = b"scretri"
_MAGIC = _FAMILY + b"1"
"""Its last character is the version of the format."""

_ORDER_MARK = 0x0102_0304
_HEAD = struct.Struct("=8sI32sIIII")
_TABLE = np.dtype(
    [
        ("number", "=i8"),
        ("stamp", f"V{STAMP_BYTES}"),
        ("written_at", "=f8"),
        ("indexed", "=f8"),
        ("start", "=u4"),
        ("length", "=u4"),
    ]
)
_CHECKSUM_BYTES = 4
_PIECE_BYTES = 1 << 22


class Fault(Enum):
    """Why a file cannot be used."""

    DAMAGED = "damaged"
    FOREIGN = "of another vocabulary or machine"
    NEWER = "written by another version of specchat"


class SegmentError(Exception):
    """A file is no usable segment of this vocabulary."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """Header of a segment's file. Offsets are in bytes from its beginning.

    table: one row for each document, with start and length in the text in tokens. n_text includes
    boundaries. checksum: of everything after the header.
    """

    table: NDArray[np.void]
    n_text: int
    n_order: int
    checksum: int
    text_offset: int

    @property
    def order_offset(self) -> int:
        """Offset of the suffix order."""
        return self.text_offset + 4 * self.n_text

    @property
    def samples_offset(self) -> int:
        """Offset of the samples."""
        return self.order_offset + 4 * self.n_order

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.samples_offset + KEY_BYTES * -(-self.n_order // SPACING)


def read_head(path: Path, vocabulary: bytes) -> Head:
    """Read and check the header of a file.

    Raises:
        SegmentError: it cannot be used.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(_HEAD.size)
        if len(start) < _HEAD.size:
            raise SegmentError(Fault.DAMAGED)
        magic, mark, owner, n_documents, n_text, n_order, checksum = _HEAD.unpack(start)
        if magic != _MAGIC and magic.startswith(_FAMILY):
            raise SegmentError(Fault.NEWER)
        if magic == _MAGIC and mark != _ORDER_MARK:
            raise SegmentError(Fault.FOREIGN)
        table_bytes = n_documents * _TABLE.itemsize
        text_offset = _HEAD.size + table_bytes + _CHECKSUM_BYTES
        head = Head(np.empty(0, _TABLE), n_text, n_order, checksum, text_offset)
        if magic != _MAGIC or size != head.size:
            raise SegmentError(Fault.DAMAGED)
        listed = file.read(table_bytes)
        if file.read(_CHECKSUM_BYTES) != _checksum(start + listed):
            raise SegmentError(Fault.DAMAGED)
    if owner != vocabulary:
        raise SegmentError(Fault.FOREIGN)
    return Head(np.frombuffer(listed, _TABLE), n_text, n_order, checksum, text_offset)


def numbers_in(path: Path) -> set[int]:
    """Numbers of the documents of a file of any vocabulary.

    Raises:
        SegmentError: it cannot be used.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        start = file.read(_HEAD.size)
    vocabulary = _HEAD.unpack(start)[2] if len(start) == _HEAD.size else b""
    return set(read_head(path, vocabulary).table["number"].tolist())


def is_sound(path: Path, head: Head) -> Generator[None, None, bool]:
    """Whether the checksum of text, order and samples matches; yields every few megabytes.

    Raises:
        OSError: it cannot be read.
    """
    checksum = 0
    with open_regular(path) as file:
        file.seek(head.text_offset)
        while piece := file.read(_PIECE_BYTES):
            checksum = zlib.crc32(piece, checksum)
            yield
    return checksum == head.checksum


def write_segment(
    path: Path, vocabulary: bytes, documents: Sequence[Document]
) -> Generator[None, None, None]:
    """Sort documents and write them atomically, readable by the owner only; yields on the way.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    text, table = _laid_out(documents)
    order = yield from suffix_order(text, DEPTH)
    order = order[text[order] != BOUNDARY]
    yield
    big_endian = text.astype(">u4")
    samples = big_endian[order[::SPACING, None] + np.arange(DEPTH, dtype=np.uint32)]
    payload = (big_endian, order, samples)
    checksum = 0
    for part in payload:
        checksum = zlib.crc32(part.data, checksum)
        yield
    counts = (len(documents), len(text), len(order), checksum)
    head = _HEAD.pack(_MAGIC, _ORDER_MARK, vocabulary, *counts) + table.tobytes()
    fresh = temporary_beside(path)
    try:
        with open(fresh, "wb", opener=private_opener) as file:
            file.write(head + _checksum(head))
            for part in payload:
                file.write(part.data)
        fresh.replace(path)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def _laid_out(documents: Sequence[Document]) -> tuple[NDArray[np.uint32], NDArray[np.void]]:
    """The reversed text of documents with a boundary at each end, and the table."""
    parts = [np.full(1, BOUNDARY, np.uint32)]
    table = np.zeros(len(documents), _TABLE)
    start = 1
    for row, document in zip(table, documents, strict=True):
        note, length = document.note, len(document.tokens)
        row["number"], row["stamp"] = note.number, np.void(note.stamp)
        row["written_at"], row["indexed"] = note.written_at, note.indexed
        row["start"], row["length"] = start, length
        parts += [document.tokens[::-1], np.full(1, BOUNDARY, np.uint32)]
        start += length + 1
    parts.append(np.full(DEPTH, BOUNDARY, np.uint32))  # so that DEPTH tokens follow every one
    return np.concatenate(parts), table


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little")
