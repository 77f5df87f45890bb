"""An open segment: searches its documents for the longest match of a text's suffix."""

import mmap
import os
import struct
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from decoding.drafters.retrieval.segment_file import (
    BOUNDARY,
    DEPTH,
    KEY_BYTES,
    SPACING,
    TOKEN_BYTES,
    Document,
    Head,
    Note,
    read_head,
)

_SMALL = 1 << 22
"""Size in bytes up to which a file may stay in memory as a whole."""


class Reader:
    """Reads text, suffix order and samples of a segment.

    order: mapped into memory. samples: read whole. The text of a large file is read rather than
    mapped where the system supports reads at an offset: the positions that a search compares are
    spread over it, and each would map many more pages than it needs.
    """

    def __init__(self, path: Path, head: Head) -> None:
        self._offset = head.text_offset
        self._is_small = head.size <= _SMALL
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            self._map = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        except BaseException:
            os.close(self._file)
            raise
        self._view = memoryview(self._map)
        self.order = self._view[head.order_offset : head.samples_offset].cast("I")
        held = self._map[head.samples_offset : head.size]
        self.samples = [held[start : start + KEY_BYTES] for start in range(0, len(held), KEY_BYTES)]
        self.release_pages()

    def reading(self, count: int) -> Callable[[int], bytes]:
        """A function that reads up to count tokens of the text at a position.

        It raises OSError if they cannot be read.
        """
        offset, size, file, mapped = self._offset, TOKEN_BYTES * count, self._file, self._map
        read = getattr(os, "pread", None)
        if read and not self._is_small:
            return lambda position: read(file, size, offset + TOKEN_BYTES * position)

        def from_map(position: int) -> bytes:
            begin = offset + TOKEN_BYTES * position
            return mapped[begin : begin + size]

        return from_map

    def release_pages(self) -> None:
        """Release the memory that searches touched; the pages stay in the system's cache."""
        if sys.platform != "win32" and not self._is_small:
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        self.order.release()
        self._view.release()
        self._map.close()
        os.close(self._file)


_TOKEN_BITS = 8 * TOKEN_BYTES
_WIDENINGS = 6
"""How often a match is shortened because all its documents are excluded."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Continuation of a match. written_at: seconds since 1970. count: matches it stands for."""

    tokens: tuple[int, ...]
    written_at: float
    count: float


class Segment:
    """A segment's file with its table of documents."""

    def __init__(self, path: Path, head: Head) -> None:
        self.path = path
        self.head = head
        self.left_out: set[int] = set()
        """Rows of the table that searches exclude."""
        self._reader = Reader(path, head)
        self._order = self._reader.order
        self._key = self._reader.reading(DEPTH)
        self._starts: list[int] = head.table["start"].tolist()
        self._written_at: list[float] = head.table["written_at"].tolist()
        self._numbers: list[int] = head.table["number"].tolist()
        self.latest = max(self._written_at, default=0.0)
        """When its latest document was written, in seconds since 1970."""

    @classmethod
    def open(cls, path: Path, vocabulary: bytes) -> Self:
        """Open a file.

        Raises:
            SegmentError: it cannot be used.
            OSError: it cannot be read.
        """
        return cls(path, read_head(path, vocabulary))

    def close(self) -> None:
        self._reader.close()

    def release_pages(self) -> None:
        """Release the memory that searches touched."""
        self._reader.release_pages()

    @property
    def n_tokens(self) -> int:
        """Number of tokens in all its documents."""
        return len(self._order)

    @property
    def n_live(self) -> int:
        """Number of tokens in documents that are not excluded."""
        return self.n_tokens - sum(map(self.length, self.left_out))

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(self._numbers)

    def rows(self) -> Iterator[int]:
        """Rows of the documents that are not excluded."""
        return (row for row in range(len(self._numbers)) if row not in self.left_out)

    def versions(self) -> Iterator[tuple[int, float]]:
        """The number of each row, and when it was indexed."""
        return zip(self._numbers, self.head.table["indexed"].tolist(), strict=True)

    def length(self, row: int) -> int:
        return int(self.head.table["length"][row])

    def note(self, row: int) -> Note:
        entry = self.head.table[row]
        return Note(
            int(entry["number"]),
            bytes(entry["stamp"]),
            float(entry["written_at"]),
            float(entry["indexed"]),
        )

    def document(self, row: int) -> Document:
        entry = self.head.table[row]
        held = self._reader.reading(int(entry["length"]))(int(entry["start"]))
        return Document(self.note(row), np.frombuffer(held, ">u4")[::-1].astype(np.uint32))

    def find(
        self, pattern: bytes, least: int, count: int, most: int, without: int | None
    ) -> tuple[int, list[Occurrence]]:
        """Length of the longest match, and up to count tokens after each of its occurrences.

        pattern: the last DEPTH tokens of a text, last one first, as in the file. least: length of
        the shortest match that counts. most: occurrences to read; an even sample stands for all.
        without: number of a document to exclude. (0, []) if there is no match.

        Raises:
            OSError: it cannot be read.
            ValueError, IndexError, struct.error: the file is damaged.
        """
        first, last = self._block(bisect_left(self._reader.samples, pattern))
        high = low = bisect_left(self._order, pattern, first, last, key=self._key)
        for _ in range(_WIDENINGS):
            length = self._common(pattern, high)
            if length < DEPTH:  # such a match would be at high, not before it
                length = max(length, self._common(pattern, low - 1))
            if length < least:
                break
            head = pattern[: TOKEN_BYTES * length]
            low, high = self._run_around(low, high, head)
            occurrences = self._occurrences(low, high, count, most, without)
            if occurrences:
                return length, occurrences
        return 0, []

    def _run_around(self, low: int, high: int, head: bytes) -> tuple[int, int]:
        """The range of all suffixes that begin with head, given a part of it, possibly empty.

        Only whole blocks if there are many: samples locate these without reading the text.
        """
        order, samples = self._order, self._reader.samples
        after = (int.from_bytes(head) + 1).to_bytes(len(head))
        low_first, low_last = self._block(bisect_left(samples, head))
        high_first, high_last = self._block(bisect_left(samples, after))
        if high_first - low_last >= SPACING:
            return low_last, high_first + 1
        # Most runs are short: gallop from the known part.
        key = self._reader.reading(len(head) // TOKEN_BYTES)
        step, last = 1, low
        while low - step >= low_first and key(order[low - step]) >= head:
            last, step = low - step, 2 * step
        begin = bisect_left(order, head, max(low_first, low - step + 1), last, key=key)
        step, first = 1, high
        while high + step <= high_last and key(order[high + step - 1]) <= head:
            first, step = high + step, 2 * step
        return begin, bisect_right(order, head, first, min(high_last, high + step - 1), key=key)

    def _block(self, sample: int) -> tuple[int, int]:
        """The block of the order that ends before a sample."""
        return max((sample - 1) * SPACING, 0), min(sample * SPACING, len(self._order))

    def _common(self, pattern: bytes, index: int) -> int:
        """Number of tokens that the pattern shares with the suffix at an index of the order."""
        if not 0 <= index < len(self._order):
            return 0
        count = len(pattern) // TOKEN_BYTES
        suffix = self._key(self._order[index])[: len(pattern)]
        difference = int.from_bytes(pattern) ^ int.from_bytes(suffix)
        return count - -(-difference.bit_length() // _TOKEN_BITS)

    def _occurrences(
        self, low: int, high: int, count: int, most: int, without: int | None
    ) -> list[Occurrence]:
        taken = min(high - low, most)
        occurrences: list[Occurrence] = []
        for index in range(taken):
            position = self._order[low + (high - low) * index // taken]
            row = bisect_right(self._starts, position) - 1
            if row in self.left_out or self._numbers[row] == without:
                continue
            tokens = self._following(position, count)
            if tokens:
                occurrences.append(Occurrence(tokens, self._written_at[row], (high - low) / taken))
        return occurrences

    def _following(self, position: int, count: int) -> tuple[int, ...]:
        """Up to count tokens after the one at a position, within its document."""
        first = max(position - count, 0)
        held = self._reader.reading(position - first)(first)
        tokens = struct.unpack(f">{position - first}I", held)[::-1]
        return tokens[: tokens.index(BOUNDARY)] if BOUNDARY in tokens else tokens


_KEY = 3
"""Tokens by which places are sorted, and so the shortest match."""

_BITS = 21
_BOUNDARY = (1 << _BITS) - 1
"""Before, between and after the texts; no vocabulary is that large."""

_MOST_OCCURRENCES = 16


class TextIndex:
    """Finds the longest match of a text's suffix, up to DEPTH tokens. 16 bytes per token.

    texts: their tokens, the most relevant text first.
    """

    def __init__(self, texts: Sequence[NDArray[np.uint32]]) -> None:
        gap = np.full(DEPTH, _BOUNDARY, np.uint32)
        self._tokens = np.concatenate([gap, *(part for text in texts for part in (text, gap))])
        wide = self._tokens.astype(np.uint64)
        keys = wide[:-3] << (2 * _BITS) | wide[1:-2] << _BITS | wide[2:-1]
        self._ends = np.argsort(keys, kind="stable").astype(np.uint32)
        self._keys = keys[self._ends]
        self._ends += _KEY

    def refresh(self) -> None:
        """Nothing else changes it."""

    def find(self, history: Sequence[int], least: int, count: int) -> tuple[int, list[Occurrence]]:
        """Length of the longest match of the history's suffix, and up to count tokens after each.

        As Corpus.find does; of more occurrences than are read, those in the first texts.
        """
        suffix = history[-DEPTH:][::-1]
        if len(suffix) < _KEY:
            return 0, []
        key = np.uint64(suffix[2] << (2 * _BITS) | suffix[1] << _BITS | suffix[0])
        first, last = np.searchsorted(self._keys, key), np.searchsorted(self._keys, key, "right")
        ends, length = self._ends[first:last], _KEY
        for token in suffix[_KEY:]:
            longer = ends[self._tokens[ends - (length + 1)] == token]
            if not longer.size:
                break
            ends, length = longer, length + 1
        if not ends.size or length < least:
            return 0, []
        occurrences: list[Occurrence] = []
        for end in ends[:_MOST_OCCURRENCES].tolist():
            tokens = self._tokens[end : end + count].tolist()
            tokens = tokens[: tokens.index(_BOUNDARY)] if _BOUNDARY in tokens else tokens
            if tokens:
                occurrences.append(Occurrence(tuple(tokens), 0.0, 1.0))
        return (length, occurrences) if occurrences else (0, [])
