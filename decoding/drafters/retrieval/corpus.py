"""The index of one vocabulary: segments in a folder, which several processes may share."""

import os
import struct
import time
from collections.abc import Collection, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from backends.base.safe_files import make_private_folder
from decoding.drafters.retrieval.segment import Occurrence, Segment
from decoding.drafters.retrieval.segment_file import (
    DEPTH,
    SUFFIX,
    Document,
    Fault,
    Note,
    SegmentError,
    is_sound,
    numbers_in,
    write_segment,
)

# Selection of segments to merge: each one left is twice as large as all smaller ones together.
#
# O'Neil et al. 1996, "The log-structured merge-tree": a token is sorted again only a few times.

MOST_TOKENS = 1 << 22
"""Size limit of a segment: sorting takes 40 bytes of memory per token."""

_LARGE = MOST_TOKENS // 2
"""Size from which a segment is no longer merged, only cleaned."""

_GROWTH = 2
_MOST_LEFT_OUT = 0.25


def to_merge(segments: Sequence[Segment]) -> list[Segment]:
    """Segments to merge into one, or a single one to clean; empty if there is nothing to do."""
    for segment in segments:
        if segment.n_live < (1.0 - _MOST_LEFT_OUT) * segment.n_tokens:
            return [segment]
    smallest_first = sorted(segments, key=lambda segment: segment.n_live)
    count = tokens = 0
    for place, segment in enumerate(smallest_first):
        if segment.n_live >= _LARGE or tokens + segment.n_live > MOST_TOKENS:
            break
        if place and segment.n_live <= _GROWTH * tokens:
            count = place + 1
        tokens += segment.n_live
    return smallest_first[:count]


def forget(root: Path, number: int) -> None:
    """Delete the segments that hold a document, and those that cannot be read.

    Other documents of these segments have to be indexed again. root: has a folder for each
    vocabulary. Temporary files of other processes are left alone; where an open file cannot be
    deleted, merging removes it.
    """
    for path in root.glob(f"*/*{SUFFIX}"):
        try:
            is_in = number in numbers_in(path)
        except SegmentError:
            is_in = True
        except OSError:
            continue
        if is_in:
            with suppress(OSError):
                path.unlink()


# The index of one vocabulary: segments in a folder, which several processes may share.
#
# Segments are written atomically and never changed, so that concurrent writers lose nothing. Of a
# document that is in several, the version indexed last counts.

_MOST_OCCURRENCES, _LEAST_OCCURRENCES = 16, 3
"""The most occurrences read of the longest match, latest segments first, and the fewest of each."""

_SEARCHES = 30
"""Number of searches after which touched pages are released: one may touch some 100 kB."""

_LEFTOVER_SECONDS = 60.0
"""Age from which a temporary file is taken to be left by a process that was killed."""


class Corpus:
    """Searches all segments of a folder. Unusable files are removed, and reported in faults.

    Not thread-safe.
    """

    def __init__(self, folder: Path, vocabulary: bytes) -> None:
        self._folder = folder
        self._vocabulary = vocabulary
        self._segments: list[Segment] = []
        self._ignored: set[str] = set()
        self._sound: set[Path] = set()
        self._kept: Collection[int] | None = None
        self._searches = 0
        self.without: int | None = None
        """Number of the current document, which searches exclude."""
        self.faults: list[str] = []
        """Messages about unusable files, each once."""
        self.refresh()

    def refresh(self) -> None:
        """Open and close segments that other processes wrote and removed."""
        names = set(self._names()) - self._ignored
        gone = [segment for segment in self._segments if segment.path.name not in names]
        fresh = names - {segment.path.name for segment in self._segments}
        if not gone and not fresh:
            return
        for segment in gone:
            self._segments.remove(segment)
            segment.close()
        for name in sorted(fresh):
            self._open(self._folder / name)
        self._segments.sort(key=lambda segment: segment.latest, reverse=True)
        self._leave_out()

    def _names(self) -> list[str]:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        return [name for name in names if name.endswith(SUFFIX) and not name.startswith(".")]

    def _open(self, path: Path) -> None:
        try:
            self._segments.append(Segment.open(path, self._vocabulary))
        except SegmentError as error:
            self._unusable(path, error.fault)
        except (OSError, ValueError):  # gone again, or no memory to map it
            self._ignored.add(path.name)

    def _unusable(self, path: Path, fault: Fault) -> None:
        """Remove a file and report it. A newer version's file is only ignored."""
        self._ignored.add(path.name)
        part = "a part of the index of earlier chats"
        message = f"{part} is {fault.value}: it is left out until the app makes it anew"
        if fault is Fault.NEWER:
            message = f"{part} was {fault.value}: it is not used"
        else:
            with suppress(OSError):
                path.unlink()
        if message not in self.faults:
            self.faults.append(message)

    def _leave_out(self) -> None:
        """Mark the rows of each segment that are outdated or not kept."""
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
        """Metadata and length in tokens of each current document, by its number."""
        return {
            note.number: (note, segment.length(row))
            for segment in self._segments
            for row in segment.rows()
            for note in (segment.note(row),)
        }

    def find(self, history: Sequence[int], least: int, count: int) -> tuple[int, list[Occurrence]]:
        """Length of the longest match of the history's suffix, and up to count tokens after each.

        least: length of the shortest match that counts. (0, []) if there is none.
        """
        suffix = history[-DEPTH:]
        pattern = struct.pack(f">{len(suffix)}I", *reversed(suffix))
        best: tuple[int, list[Occurrence]] = (0, [])
        for segment in tuple(self._segments):
            if best[0] == DEPTH and len(best[1]) >= _MOST_OCCURRENCES:
                break
            least = max(best[0], least)
            most = max(_MOST_OCCURRENCES - len(best[1]), _LEAST_OCCURRENCES)
            try:
                length, occurrences = segment.find(pattern, least, count, most, self.without)
            except (OSError, ValueError, IndexError, struct.error):
                self._discard(segment, Fault.DAMAGED)
                continue
            if length > best[0]:
                best = length, occurrences
            else:
                best[1].extend(occurrences)
            self._searches += 1
        if self._searches >= _SEARCHES:
            self._release_pages()
        return best

    def _release_pages(self) -> None:
        self._searches = 0
        for segment in self._segments:
            segment.release_pages()

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
        """Index documents; yields often, so that it can be stopped.

        Raises:
            OSError: they cannot be written; the corpus is as it was.
        """
        make_private_folder(self._folder)
        path = self._folder / f"{uuid4().hex}{SUFFIX}"
        yield from write_segment(path, self._vocabulary, documents)
        self.refresh()

    def keep(self, numbers: Collection[int]) -> None:
        """Exclude all other documents from now on; merging drops them."""
        self._kept = numbers
        self._leave_out()

    def forget_all_but(self, numbers: Collection[int]) -> bool:
        """Delete the segments that hold any other document, together with the rest of them.

        Returns whether there was one.
        """
        gone = [segment for segment in self._segments if not segment.numbers.issubset(numbers)]
        for segment in gone:
            self._delete(segment)
        self._leave_out()
        return bool(gone)

    def tidy(self) -> None:
        """Remove temporary files left by processes that were killed."""
        for path in self._folder.glob(f".*{SUFFIX}.*"):
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - _LEFTOVER_SECONDS:
                    path.unlink()

    def check(self) -> Generator[None, None, None]:
        """Verify every segment once, and remove damaged ones; yields on the way."""
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
        """Merge small segments into large ones without outdated documents; yields on the way.

        Raises:
            OSError: they cannot be written; the corpus is as it was.
        """
        while group := to_merge(self._segments):
            documents: list[Document] = []
            for segment in group:
                documents += map(segment.document, segment.rows())
                yield
            documents.sort(key=lambda document: document.note.written_at)
            if documents:
                yield from self.add(documents)
            for segment in group:
                if segment in self._segments:
                    self._delete(segment)
            self._leave_out()

    def close(self) -> None:
        while self._segments:
            self._segments.pop().close()
