"""All that was said before in one vocabulary: segments in a folder, which programs may share.

Segments are written whole and never changed; two programs that write at once lose nothing. Of a
document that stands in several, the version indexed last counts.
"""

import os
import struct
import time
from collections.abc import Collection, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from backends.base.private_file import make_private_folder
from decoding.retrieval.document import Document, Note
from decoding.retrieval.merging import to_merge
from decoding.retrieval.segment import Occurrence, Segment
from decoding.retrieval.segment_file import (
    DEPTH,
    SUFFIX,
    Fault,
    SegmentError,
    is_sound,
    write_segment,
)

_MOST_OCCURRENCES, _LEAST_OCCURRENCES = 16, 3
"""Places read of all that match equally long, the latest segments first, and of each at least."""

_SEARCHES = 30
"""After which the pages that they touched are let go: one may touch some 100 kB."""

_LEFTOVER_SECONDS = 60.0
"""A file half written that nobody wrote to for so long was left by a program that was killed."""


class Corpus:
    """One thread at a time may use it. An unusable file is removed, and faults says so."""

    def __init__(self, folder: Path, vocabulary: bytes) -> None:
        self._folder = folder
        self._vocabulary = vocabulary
        self._segments: list[Segment] = []
        self._ignored: set[str] = set()
        self._sound: set[Path] = set()
        self._kept: Collection[int] | None = None
        self._searches = 0
        self.without: int | None = None
        """The number of the document at work, which is not looked at."""
        self.faults: list[str] = []
        """In words, what could not be used, each once."""
        self.refresh()

    def refresh(self) -> None:
        """See what other programs wrote and removed."""
        names = set(self._names()) - self._ignored
        gone = [one for one in self._segments if one.path.name not in names]
        fresh = names - {one.path.name for one in self._segments}
        if not gone and not fresh:
            return
        for segment in gone:
            self._segments.remove(segment)
            segment.close()
        for name in sorted(fresh):
            self._open(self._folder / name)
        self._segments.sort(key=lambda one: one.latest, reverse=True)
        self._leave_out()

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._folder) if _is_segment(name)]
        except OSError:
            return []

    def _open(self, path: Path) -> None:
        try:
            self._segments.append(Segment.open(path, self._vocabulary))
        except SegmentError as error:
            self._unusable(path, error.fault)
        except (OSError, ValueError):  # gone again, or no memory to map it
            self._ignored.add(path.name)

    def _unusable(self, path: Path, fault: Fault) -> None:
        """Set a file aside. What another version wrote is left to it."""
        self._ignored.add(path.name)
        part = "a part of the index of earlier chats"
        said = f"{part} is {fault.value}: it is left out until the app makes it anew"
        if fault is Fault.NEWER:
            said = f"{part} was {fault.value}: it is not used"
        else:
            with suppress(OSError):
                path.unlink()
        if said not in self.faults:
            self.faults.append(said)

    def _leave_out(self) -> None:
        """Find the rows of each segment that do not count."""
        latest: dict[int, tuple[float, Path]] = {}
        for segment in self._segments:
            for number, indexed in segment.versions():
                mark = (indexed, segment.path)
                latest[number] = max(latest.get(number, mark), mark)
        for segment in self._segments:
            segment.left_out = {
                row
                for row, (number, indexed) in enumerate(segment.versions())
                if latest[number] != (indexed, segment.path)
                or (self._kept is not None and number not in self._kept)
            }

    def notes(self) -> dict[int, tuple[Note, int]]:
        """By number, what is noted of each document that counts, and its length in tokens."""
        return {
            note.number: (note, segment.length(row))
            for segment in self._segments
            for row in segment.rows()
            for note in (segment.note(row),)
        }

    def find(self, history: Sequence[int], least: int, count: int) -> tuple[int, list[Occurrence]]:
        """The longest match of a history's end, and what followed, count tokens at most.

        least: tokens of the shortest match that counts. (0, []) where there is none.
        """
        tail = history[-DEPTH:]
        pattern = struct.pack(f">{len(tail)}I", *reversed(tail))
        best: tuple[int, list[Occurrence]] = (0, [])
        for segment in tuple(self._segments):
            if best[0] == DEPTH and len(best[1]) >= _MOST_OCCURRENCES:
                break
            least = max(best[0], least)
            most = max(_MOST_OCCURRENCES - len(best[1]), _LEAST_OCCURRENCES)
            try:
                length, found = segment.find(pattern, least, count, most, self.without)
            except (OSError, ValueError, IndexError, struct.error):
                self._discard(segment, Fault.DAMAGED)
                continue
            if length > best[0]:
                best = length, found
            else:
                best[1].extend(found)
            self._searches += 1
        if self._searches >= _SEARCHES:
            self._let_go()
        return best

    def _let_go(self) -> None:
        self._searches = 0
        for segment in self._segments:
            segment.let_go()

    def _delete(self, segment: Segment) -> None:
        self._segments.remove(segment)
        segment.close()
        try:
            segment.path.unlink(missing_ok=True)
        except OSError:  # some systems keep a file that another program has open
            self._ignored.add(segment.path.name)

    def _discard(self, segment: Segment, fault: Fault) -> None:
        self._delete(segment)
        self._unusable(segment.path, fault)

    def add(self, documents: Sequence[Document]) -> Generator[None, None, None]:
        """Index documents; yields on the way, often enough to be stopped at any moment.

        Raises:
            OSError: they cannot be written; the corpus is as it was.
        """
        make_private_folder(self._folder)
        path = self._folder / f"{uuid4().hex}{SUFFIX}"
        yield from write_segment(path, self._vocabulary, documents)
        self.refresh()

    def keep(self, numbers: Collection[int]) -> None:
        """Leave all other documents out, from now on; merging drops them."""
        self._kept = numbers
        self._leave_out()

    def forget_all_but(self, numbers: Collection[int]) -> bool:
        """Delete the segments that hold any other document; the rest of them goes with it.

        Returns whether there was one.
        """
        gone = [one for one in self._segments if not one.numbers.issubset(numbers)]
        for segment in gone:
            self._delete(segment)
        self._leave_out()
        return bool(gone)

    def tidy(self) -> None:
        """Remove what programs that were killed left half written."""
        for path in self._folder.glob(f".*{SUFFIX}.*"):
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - _LEFTOVER_SECONDS:
                    path.unlink()

    def check(self) -> Generator[None, None, None]:
        """Read every segment once, and drop those that are damaged."""
        for segment in tuple(self._segments):
            if segment.path in self._sound:
                continue
            try:
                sound = yield from is_sound(segment.path, segment.head)
            except OSError:
                continue
            if sound:
                self._sound.add(segment.path)
            elif segment in self._segments:
                self._discard(segment, Fault.DAMAGED)
                self._leave_out()

    def merge(self) -> Generator[None, None, None]:
        """Make few large segments out of many small ones, without what does not count.

        Raises:
            OSError: they cannot be written; the corpus is as it was.
        """
        while group := to_merge(self._segments):
            documents: list[Document] = []
            for segment in group:
                documents += map(segment.document, segment.rows())
                yield
            documents.sort(key=lambda document: document.note.said)
            if documents:
                yield from self.add(documents)
            for segment in group:
                if segment in self._segments:
                    self._delete(segment)
            self._leave_out()

    def close(self) -> None:
        """Let go of all files."""
        while self._segments:
            self._segments.pop().close()


def _is_segment(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")
