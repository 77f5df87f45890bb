"""File of an index segment: documents in one vocabulary, and the order of their suffixes.

Layout: head, table of documents, CRC-32 of both, text, order, samples. The text is reversed, so
that the tokens before a place follow it, and big-endian, so that bytes sort like tokens; the rest
has the machine's byte order, which the head records. The samples are the DEPTH tokens at every
SPACING-th entry of the order: a search begins in memory.
"""

import struct
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.base.safe_files import (
    DamagedFileError,
    OtherVersionError,
    TabledFormat,
    crc32,
    open_regular,
    replacing,
    sync_file,
)

STAMP_BYTES = 16


@dataclass(frozen=True, slots=True)
class Note:
    """Metadata of a version of a document.

    number: identifies the document. stamp: identifies the version, 16 bytes. written_at: when the
    text was written, and indexed: when this version was indexed, in seconds since 1970.
    """

    number: int
    stamp: bytes
    written_at: float
    indexed: float


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A text's tokens in order, with their metadata."""

    note: Note
    tokens: NDArray[np.uint32]


# Suffix sorting to a fixed depth.
#
# Larsson and Sadakane 2007, "Faster suffix sorting": ranks by the first h tokens give those by the
# first 2h, and only positions that are still equal are sorted again.

_CHUNK = 1 << 16
"""Positions sorted between two yields, unless more are equal: some 10 ms."""

_HALF_BITS = 16


def suffix_order(text: NDArray[np.uint32], depth: int) -> Generator[None, None, NDArray[np.uint32]]:
    """Positions of a text in the order of the depth tokens that begin at each.

    text: less than 2**32 tokens. depth: a power of two. A suffix sorts before its extensions.
    Yields often, so that the caller can pause it.
    """
    low = np.argsort(text.astype(np.uint16), kind="stable")  # two passes of counting, no compares
    yield
    high = np.argsort((text[low] >> _HALF_BITS).astype(np.uint16), kind="stable")
    order = low[high].astype(np.uint32)
    del low, high
    yield
    starts = _starts(text[order])
    rank = np.zeros(len(text) + depth, np.uint32)  # positions past the end sort first
    rank[order] = _ranks(starts)
    compared = 1
    while compared < depth:
        yield
        tied = np.flatnonzero(~(starts & np.append(starts[1:], True)))
        for chunk in _chunks(tied, starts):
            among = order[chunk]
            keys = rank[among].astype(np.int64) << 32 | rank[among + compared]
            sorting = np.argsort(keys)
            order[chunk] = among[sorting]
            starts[chunk] = _starts(keys[sorting])
            rank[order[chunk]] = chunk[0] + _ranks(starts[chunk], chunk - chunk[0])
            yield
        compared *= 2
    return order


def _chunks(tied: NDArray[np.int64], starts: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
    """The tied positions in chunks that split no run of equal ones."""
    runs = np.flatnonzero(starts[tied])
    begin = 0
    while begin < len(tied):
        after = np.searchsorted(runs, begin + _CHUNK)
        end = int(runs[after]) if after < len(runs) else len(tied)
        yield tied[begin:end]
        begin = end


def _starts(keys: NDArray[np.int64] | NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Mask of the positions where a run of equal sorted keys begins."""
    starts = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=starts[1:])
    return starts


def _ranks(starts: NDArray[np.bool_], places: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Rank of each key: one more than the position where its run begins."""
    places = np.arange(len(starts)) if places is None else places
    return np.maximum.accumulate(np.where(starts, places, 0)) + 1


SUFFIX = ".segment"
DEPTH = 16
"""Number of tokens by which positions are sorted, and so the longest match."""

BOUNDARY = 0xFFFF_FFFF
"""Separator of documents in the text; no token."""

SPACING = 128
TOKEN_BYTES = 4
KEY_BYTES = TOKEN_BYTES * DEPTH
_FORMAT = TabledFormat(b"scretri1", struct.Struct("=I32sIIII"), crc32)
_BYTE_ORDER_MARK = 0x0102_0304
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
_PIECE_BYTES = 1 << 22


class Fault(Enum):
    """Why a file cannot be used."""

    DAMAGED = "damaged"
    FOREIGN = "of another vocabulary or machine"
    NEWER = "written by another version of specchat"


class SegmentError(Exception):
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
        return self.text_offset + 4 * self.n_text

    @property
    def samples_offset(self) -> int:
        return self.order_offset + 4 * self.n_order

    @property
    def size(self) -> int:
        return self.samples_offset + KEY_BYTES * -(-self.n_order // SPACING)


def read_head(path: Path, vocabulary: bytes) -> Head:
    """Read and check the header of a file.

    Raises:
        SegmentError: the file cannot be used.
        OSError: it cannot be read.
    """
    owner, head = _read_head(path)
    if owner != vocabulary:
        raise SegmentError(Fault.FOREIGN)
    return head


def numbers_in(path: Path) -> set[int]:
    """Numbers of the documents of a file of any vocabulary.

    Raises:
        SegmentError: the file cannot be used.
        OSError: it cannot be read.
    """
    return set(_read_head(path)[1].table["number"].tolist())


def _read_head(path: Path) -> tuple[bytes, Head]:
    try:
        with open_regular(path) as file:
            fields, listed = _FORMAT.read_head(file, _sizes)
    except DamagedFileError as error:
        raise SegmentError(Fault.DAMAGED) from error
    except OtherVersionError as error:
        raise SegmentError(Fault.NEWER) from error
    _, vocabulary, _, n_text, n_order, checksum = fields
    table = np.frombuffer(listed, _TABLE)
    return vocabulary, Head(table, n_text, n_order, checksum, _FORMAT.data_offset(len(listed)))


def _sizes(
    mark: int, _vocabulary: bytes, n_documents: int, n_text: int, n_order: int, checksum: int
) -> tuple[int, int]:
    """Bytes of the table and of all after it."""
    if mark != _BYTE_ORDER_MARK:
        raise SegmentError(Fault.FOREIGN)
    head = Head(np.empty(0, _TABLE), n_text, n_order, checksum, text_offset=0)
    return n_documents * _TABLE.itemsize, head.size


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
    reversed_text = text.astype(">u4")
    samples = reversed_text[order[::SPACING, None] + np.arange(DEPTH, dtype=np.uint32)]
    payload = (reversed_text, order, samples)
    checksum = 0
    for part in payload:
        checksum = zlib.crc32(part.data, checksum)
        yield
    counts = (len(documents), len(text), len(order), checksum)
    with replacing(path) as file:
        file.write(_FORMAT.head((_BYTE_ORDER_MARK, vocabulary, *counts), table.tobytes()))
        for part in payload:
            whole = part.reshape(-1).view(np.uint8)
            for start in range(0, whole.size, _PIECE_BYTES):
                file.write(whole[start : start + _PIECE_BYTES].data)
                sync_file(file)
                yield


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
