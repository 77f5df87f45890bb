"""Reads the pages of a damaged SQLite file and of its write-ahead log, without SQLite.

Format: https://www.sqlite.org/fileformat2.html
"""

import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Self

from backends.base.regular_file import open_regular

USUAL_PAGE_BYTES = 4096
PAGE_SIZES = tuple(1 << bits for bits in range(9, 17))
_HEAD_BYTES = 100
_LOG_HEAD_BYTES, _FRAME_HEAD_BYTES = 32, 24
_FRAME = struct.Struct(">II8s")
"""Page number, size of the file in pages if this frame ends a transaction, salt."""

_SALT_OFFSET = 16


class PageFile:
    """Pages of a database by number, from 1; log may be missing."""

    def __init__(self, path: Path, log: Path, page_bytes: int | None = None) -> None:
        with ExitStack() as stack:
            self._file: BinaryIO = stack.enter_context(open_regular(path))
            self._log: BinaryIO | None = None
            if log.exists():
                self._log = stack.enter_context(open_regular(log))
            head = self._file.read(_HEAD_BYTES)
            self.page_bytes = page_bytes or _page_bytes(head)
            """Size of a page."""
            self._frames = self._logged()
            self._held = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_reason: object) -> None:
        self._held.close()

    @property
    def numbers(self) -> Iterator[int]:
        """Numbers of all pages: those in the file, then further ones in the log."""
        count = -(-os.fstat(self._file.fileno()).st_size // self.page_bytes)
        yield from range(1, count + 1)
        yield from sorted(number for number in self._frames if number > count)

    def page(self, number: int) -> bytes:
        """Newest version of a page; empty if there is none."""
        return next(self.versions(number), b"")

    def versions(self, number: int) -> Iterator[bytes]:
        """All versions of a page, newest first; a page cut short is padded with zeros."""
        for offset in reversed(self._frames.get(number, ())):
            assert self._log is not None
            yield self._read(self._log, offset)
        if page := self._read(self._file, (number - 1) * self.page_bytes):
            yield page

    def _read(self, file: BinaryIO, offset: int) -> bytes:
        if offset < 0:
            return b""
        file.seek(offset)
        page = file.read(self.page_bytes)
        return page.ljust(self.page_bytes, b"\0") if page else b""

    def _logged(self) -> dict[int, list[int]]:
        """Offsets of each page in the log, newest last, up to the last committed transaction.

        Frames from earlier uses of the log have another salt. Checksums are ignored, as one damaged
        frame would invalidate all after it.
        """
        frames: dict[int, list[int]] = {}
        if self._log is None:
            return frames
        salt = self._log.read(_LOG_HEAD_BYTES)[_SALT_OFFSET : _SALT_OFFSET + 8]
        frame_bytes = _FRAME_HEAD_BYTES + self.page_bytes
        size = os.fstat(self._log.fileno()).st_size
        open_frames: list[tuple[int, int]] = []
        for offset in range(_LOG_HEAD_BYTES, size - frame_bytes + 1, frame_bytes):
            self._log.seek(offset)
            number, ends, frame_salt = _FRAME.unpack(self._log.read(_FRAME.size))
            if offset == _LOG_HEAD_BYTES:
                salt = frame_salt  # the head may be damaged
            if frame_salt != salt:
                continue
            open_frames.append((number, offset + _FRAME_HEAD_BYTES))
            if ends:
                for page, start in open_frames:
                    frames.setdefault(page, []).append(start)
                open_frames.clear()
        return frames


def _page_bytes(head: bytes) -> int:
    size = int.from_bytes(head[16:18])
    size = 1 << 16 if size == 1 else size
    return size if size in PAGE_SIZES else USUAL_PAGE_BYTES
