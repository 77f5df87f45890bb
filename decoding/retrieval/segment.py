"""A segment that is open: finds where the end of a text stood in its documents."""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from decoding.retrieval.document import Document, Note
from decoding.retrieval.reader import Reader
from decoding.retrieval.segment_file import (
    BOUNDARY,
    DEPTH,
    SPACING,
    TOKEN_BYTES,
    Head,
    read_head,
)

_TOKEN_BITS = 8 * TOKEN_BYTES
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
        self._reader = Reader(path, head)
        self._order = self._reader.order
        self._key = self._reader.reading(DEPTH)
        self._starts: list[int] = head.table["start"].tolist()
        self._said: list[float] = head.table["said"].tolist()
        self._numbers: list[int] = head.table["number"].tolist()
        self.latest = max(self._said, default=0.0)
        """When the last of its documents was said, in seconds since 1970."""

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
        self._reader.close()

    def let_go(self) -> None:
        """Give back the memory that searches touched."""
        self._reader.let_go()

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
        held = self._reader.reading(int(entry["length"]))(int(entry["start"]))
        return Document(self.note(row), np.frombuffer(held, ">u4")[::-1].astype(np.uint32))

    def find(
        self, pattern: bytes, least: int, count: int, most: int, without: int | None
    ) -> tuple[int, list[Occurrence]]:
        """The longest match of at least least tokens, and what followed, count tokens at most.

        most: places that are read of those that match equally long; spread evenly, they stand for
        all.

        pattern: the last DEPTH tokens of a text, the last one first, as in the file. without: the
        number of a document that is not looked at. (0, []) where nothing is found.

        Raises:
            OSError: it cannot be read.
            ValueError, IndexError, struct.error: the file is damaged.
        """
        first, last = self._block(bisect_left(self._reader.samples, pattern))
        high = low = bisect_left(self._order, pattern, first, last, key=self._key)
        for _ in range(_WIDENINGS):
            length = self._common(pattern, high)
            if length < DEPTH:  # such a match would stand at high, not before it
                length = max(length, self._common(pattern, low - 1))
            if length < least:
                break
            head = pattern[: TOKEN_BYTES * length]
            low, high = self._run_around(low, high, head)
            found = self._occurrences(low, high, count, most, without)
            if found:
                return length, found
        return 0, []

    def _run_around(self, low: int, high: int, head: bytes) -> tuple[int, int]:
        """All suffixes that begin with head, given some of them, or the place between its ends.

        Those of whole blocks only where they are many: samples tell of them without reading.
        """
        order, samples = self._order, self._reader.samples
        after = (int.from_bytes(head) + 1).to_bytes(len(head))
        low_first, low_last = self._block(bisect_left(samples, head))
        high_first, high_last = self._block(bisect_left(samples, after))
        if high_first - low_last >= SPACING:
            return low_last, high_first + 1
        # Most runs are short: it looks near first.
        key = self._reader.reading(len(head) // TOKEN_BYTES)
        step, last = 1, low
        while low - step >= low_first and key(order[low - step]) >= head:
            last, step = low - step, 2 * step
        found = bisect_left(order, head, max(low_first, low - step + 1), last, key=key)
        step, first = 1, high
        while high + step <= high_last and key(order[high + step - 1]) <= head:
            first, step = high + step, 2 * step
        return found, bisect_right(order, head, first, min(high_last, high + step - 1), key=key)

    def _block(self, sample: int) -> tuple[int, int]:
        """The part of the order that ends before a sample."""
        return max((sample - 1) * SPACING, 0), min(sample * SPACING, len(self._order))

    def _common(self, pattern: bytes, index: int) -> int:
        """How many tokens of the pattern begin the suffix at an index of the order."""
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
        held = self._reader.reading(place - first)(first)
        tokens = struct.unpack(f">{place - first}I", held)[::-1]
        return tokens[: tokens.index(BOUNDARY)] if BOUNDARY in tokens else tokens
