"""A segment that is open: finds where the end of a text stood in its documents."""

import mmap
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from decoding.retrieval.document import Document, Note
from decoding.retrieval.segment_file import BOUNDARY, DEPTH, Head, read_head

_TOKEN_BYTES = 4
_MOST_OCCURRENCES = 16
"""Read of those that match equally long; spread evenly, they stand for all."""

_WIDENINGS = 6
"""How often a match gives way to a shorter one because all its documents are left out."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What followed in one place. said: in seconds since 1970. count: places it stands for."""

    tokens: tuple[int, ...]
    said: float
    count: float


class Segment:
    """A file mapped into memory, read where a search leads."""

    def __init__(self, path: Path, head: Head) -> None:
        self.path = path
        self.head = head
        self.left_out: set[int] = set()
        """Rows of the table that are not looked at."""
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._view = memoryview(self._map)
        self._order = self._view[head.order_offset : head.size].cast("I")
        self._starts: list[int] = head.table["start"].tolist()
        self._said: list[float] = head.table["said"].tolist()
        self._numbers: list[int] = head.table["number"].tolist()

    @classmethod
    def open(cls, path: Path, vocabulary: bytes) -> Self:
        """Open a file.

        Raises:
            SegmentError: it cannot be used.
            OSError: it cannot be read.
        """
        return cls(path, read_head(path, vocabulary))

    def close(self) -> None:
        """Let go of the file."""
        self._order.release()
        self._view.release()
        self._map.close()

    @property
    def n_tokens(self) -> int:
        """Of all its documents."""
        return len(self._order)

    @property
    def n_live(self) -> int:
        """Of those that are not left out."""
        return self.n_tokens - sum(map(self.length, self.left_out))

    @property
    def numbers(self) -> frozenset[int]:
        """Of all its documents."""
        return frozenset(self._numbers)

    def rows(self) -> Iterator[int]:
        """Documents that are not left out, by their rows in the table."""
        return (row for row in range(len(self._numbers)) if row not in self.left_out)

    def versions(self) -> Iterator[tuple[int, float]]:
        """The number of each row, and when it was indexed."""
        return zip(self._numbers, self.head.table["indexed"].tolist(), strict=True)

    def length(self, row: int) -> int:
        """Tokens of a document."""
        return int(self.head.table["length"][row])

    def note(self, row: int) -> Note:
        """What is noted of a document."""
        entry = self.head.table[row]
        return Note(
            int(entry["number"]),
            bytes(entry["stamp"]),
            float(entry["said"]),
            float(entry["indexed"]),
        )

    def document(self, row: int) -> Document:
        """A document by its row in the table."""
        entry = self.head.table[row]
        begin = self.head.text_offset + _TOKEN_BYTES * int(entry["start"])
        held = self._map[begin : begin + _TOKEN_BYTES * int(entry["length"])]
        return Document(self.note(row), np.frombuffer(held, ">u4")[::-1].astype(np.uint32))

    def find(
        self, pattern: bytes, least: int, count: int, without: int | None
    ) -> tuple[int, list[Occurrence]]:
        """The longest match of at least least tokens, and what followed, count tokens at most.

        pattern: the last DEPTH tokens of a text, the last one first, as in the file. without: the
        number of a document that is not looked at. (0, []) where nothing is found.

        Raises:
            ValueError, IndexError, struct.error: the file is damaged.
        """
        high = low = bisect_left(self._order, pattern, key=self._key)
        for _ in range(_WIDENINGS):
            length = max(self._common(pattern, low - 1), self._common(pattern, high))
            if length < least:
                break
            head = pattern[: _TOKEN_BYTES * length]
            low, high = self._run_around(low, high, head)
            found = self._occurrences(low, high, count, without)
            if found:
                return length, found
        return 0, []

    def _run_around(self, low: int, high: int, head: bytes) -> tuple[int, int]:
        """All suffixes that begin with head, given some of them, or the place between its ends.

        Most runs are short: it looks near first, so that few pages are touched.
        """
        order, size = self._order, len(head)

        def key(place: int) -> bytes:
            return self._key(place, size)

        step = 1
        while low >= step and key(order[low - step]) >= head:
            step *= 2
        low = bisect_left(order, head, max(low - step + 1, 0), low, key=key)
        step = 1
        while high + step <= len(order) and key(order[high + step - 1]) <= head:
            step *= 2
        high = bisect_right(order, head, high, min(high + step - 1, len(order)), key=key)
        return low, high

    def _key(self, place: int, size: int = _TOKEN_BYTES * DEPTH) -> bytes:
        """The first bytes of the suffix at a place."""
        begin = self.head.text_offset + _TOKEN_BYTES * place
        return self._map[begin : begin + size]

    def _common(self, pattern: bytes, index: int) -> int:
        """How many tokens of the pattern begin the suffix at an index of the order."""
        if not 0 <= index < len(self._order):
            return 0
        size = len(pattern)
        difference = int.from_bytes(pattern) ^ int.from_bytes(self._key(self._order[index], size))
        return (8 * size - difference.bit_length()) // (8 * _TOKEN_BYTES)

    def _occurrences(
        self, low: int, high: int, count: int, without: int | None
    ) -> list[Occurrence]:
        taken = min(high - low, _MOST_OCCURRENCES)
        found: list[Occurrence] = []
        for index in range(taken):
            place = self._order[low + (high - low) * index // taken]
            row = bisect_right(self._starts, place) - 1
            if row in self.left_out or self._numbers[row] == without:
                continue
            tokens = self._following(place, count)
            if tokens:
                found.append(Occurrence(tokens, self._said[row], (high - low) / taken))
        return found

    def _following(self, place: int, count: int) -> tuple[int, ...]:
        """The tokens said after the one at a place, to the end of its document."""
        first = max(place - count, 0)
        offset = self.head.text_offset
        held = self._map[offset + _TOKEN_BYTES * first : offset + _TOKEN_BYTES * place]
        tokens = struct.unpack(f">{place - first}I", held)[::-1]
        return tokens[: tokens.index(BOUNDARY)] if BOUNDARY in tokens else tokens

    def let_go(self) -> None:
        """Give back the memory that searches touched; the pages stay in the system's cache."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
