"""The file of a segment: documents in one vocabulary, and the order of their suffixes.

Layout: head, table of documents, checksum of both, text, order, samples. The text is turned round,
so that what stood before a token follows it, and big-endian, so that bytes sort like tokens; the
rest has the byte order of the machine, which the head tells. The samples are the DEPTH tokens at
every SPACING-th place of the order: a search begins in memory.
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
"""Tokens by which the places of a text are sorted: the longest match."""

BOUNDARY = 0xFFFF_FFFF
"""Stands in the text where a document begins or ends; no token."""

SPACING = 128
TOKEN_BYTES = 4
KEY_BYTES = TOKEN_BYTES * DEPTH
_FAMILY = b"scretri"
_MAGIC = _FAMILY + b"1"
"""The last character is the version of the format."""

_ORDER_MARK = 0x0102_0304
_HEAD = struct.Struct("=8sI32sIIII")
_TABLE = np.dtype(
    [
        ("number", "=i8"),
        ("stamp", f"V{STAMP_BYTES}"),
        ("said", "=f8"),
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
    """A file that is no segment of this vocabulary."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """What a file says of itself. Offsets are in bytes, from its beginning.

    table: one row for each document, its start and length in the text in tokens. n_text counts
    boundaries too. checksum: of all that follows.
    """

    table: NDArray[np.void]
    n_text: int
    n_order: int
    checksum: int
    text_offset: int

    @property
    def order_offset(self) -> int:
        """Where the order of the suffixes begins."""
        return self.text_offset + 4 * self.n_text

    @property
    def samples_offset(self) -> int:
        """Where the samples begin."""
        return self.order_offset + 4 * self.n_order

    @property
    def size(self) -> int:
        """Of the whole file."""
        return self.samples_offset + KEY_BYTES * -(-self.n_order // SPACING)


def read_head(path: Path, vocabulary: bytes) -> Head:
    """What a file holds.

    Raises:
        SegmentError: it cannot be used.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(_HEAD.size)
        if len(start) < _HEAD.size:
            raise SegmentError(Fault.DAMAGED)
        magic, mark, found, n_documents, n_text, n_order, checksum = _HEAD.unpack(start)
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
    if found != vocabulary:
        raise SegmentError(Fault.FOREIGN)
    return Head(np.frombuffer(listed, _TABLE), n_text, n_order, checksum, text_offset)


def numbers_in(path: Path) -> set[int]:
    """The numbers of the documents of a file, whatever its vocabulary.

    Raises:
        SegmentError: it cannot be used.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        start = file.read(_HEAD.size)
    vocabulary = _HEAD.unpack(start)[2] if len(start) == _HEAD.size else b""
    return set(read_head(path, vocabulary).table["number"].tolist())


def is_sound(path: Path, head: Head) -> Generator[None, None, bool]:
    """Whether text, order and samples are what was written; yields after every few megabytes.

    Raises:
        OSError: it cannot be read.
    """
    found = 0
    with open_regular(path) as file:
        file.seek(head.text_offset)
        while piece := file.read(_PIECE_BYTES):
            found = zlib.crc32(piece, found)
            yield
    return found == head.checksum


def write_segment(
    path: Path, vocabulary: bytes, documents: Sequence[Document]
) -> Generator[None, None, None]:
    """Sort documents and write them whole, readable by their owner alone; yields on the way.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    text, table = _laid_out(documents)
    order = yield from suffix_order(text, DEPTH)
    order = order[text[order] != BOUNDARY]
    yield
    turned = text.astype(">u4")
    samples = turned[order[::SPACING, None] + np.arange(DEPTH, dtype=np.uint32)]
    payload = (turned, order, samples)
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
    """The text of documents turned round, with a boundary at each end, and the table."""
    parts = [np.full(1, BOUNDARY, np.uint32)]
    table = np.zeros(len(documents), _TABLE)
    start = 1
    for row, document in zip(table, documents, strict=True):
        note, length = document.note, len(document.tokens)
        row["number"], row["stamp"] = note.number, np.void(note.stamp)
        row["said"], row["indexed"] = note.said, note.indexed
        row["start"], row["length"] = start, length
        parts += [document.tokens[::-1], np.full(1, BOUNDARY, np.uint32)]
        start += length + 1
    parts.append(np.full(DEPTH, BOUNDARY, np.uint32))  # so that DEPTH tokens follow every one
    return np.concatenate(parts), table


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little")
