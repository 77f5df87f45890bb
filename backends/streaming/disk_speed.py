"""Speed at which a model's file comes from disk."""

import mmap
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

_SECONDS = 0.8
_PIECE = 4 << 20
_READERS = 2
"""Pieces under way at once: the system's readahead keeps the disk as busy."""
_FEWEST_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class DiskSpeed:
    """Bytes per second read from the disk of a file, and the source of the figure."""

    bytes_per_second: float
    source: str
    """In plain words, for display."""


def measured_disk_speed(path: Path) -> DiskSpeed | None:
    """Measure reading a file past the system's cache, in about a second.

    Pieces of 4 MB are read in order, as a pass reads weights, from the middle of the file on. None
    where the cache cannot be passed by (a file system without direct reading, as in memory), or the
    file is too small or cannot be read.
    """
    try:
        size = path.stat().st_size if path.is_file() else 0
        if size < _FEWEST_BYTES:
            return None
        done, seconds = _read_for(path, size)
    except (OSError, ValueError):
        return None
    if done < _FEWEST_BYTES:
        return None
    source = f"measured: {done / 1e6:.0f} MB of {path.name} read from disk"
    return DiskSpeed(done / seconds, source)


def _read_for(path: Path, size: int) -> tuple[int, float]:
    """Bytes read of a file until time is up, and seconds; every piece is read at most once."""
    pieces = iter(_offsets(size))
    start = time.perf_counter()
    with ThreadPoolExecutor(_READERS) as pool:
        readers = [
            pool.submit(_read_pieces, path, pieces, start + _SECONDS) for _ in range(_READERS)
        ]
        done = sum(reader.result() for reader in readers)
    return done, time.perf_counter() - start


def _offsets(size: int) -> list[int]:
    """Offsets of all whole pieces, from the middle to the end, then from the start."""
    count = size // _PIECE
    return [index % count * _PIECE for index in range(count // 2, count // 2 + count)]


def _read_pieces(path: Path, pieces: Iterator[int], deadline: float) -> int:
    done = 0
    with mmap.mmap(-1, _PIECE) as buffer, _open_uncached(path) as file:  # memory aligned to pages
        while time.perf_counter() < deadline:
            offset = next(pieces, None)
            if offset is None:
                break
            _forget(file, offset)
            file.seek(offset)
            done += file.readinto(memoryview(buffer)) or 0
    return done


def _forget(file: FileIO, offset: int) -> None:
    """Drop a piece from the page cache (Linux): compressed files are read through it anyway."""
    if sys.platform == "linux":
        os.posix_fadvise(file.fileno(), offset, _PIECE, os.POSIX_FADV_DONTNEED)


def _open_uncached(path: Path) -> FileIO:
    """Open a file for reading past the system's cache. Raises OSError: it cannot be opened so."""
    if sys.platform == "win32":
        from backends.streaming.windows_memory import open_unbuffered

        return FileIO(open_unbuffered(path))
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_DIRECT", 0)
    descriptor = os.open(path, flags)
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_NOCACHE, 1)
    return FileIO(descriptor)
