"""Replacing files whole: written under a temporary name beside them, then renamed.

The disk has the content before the name changes: a power cut would otherwise leave an empty file.
A temporary name ends in the number of the writing process, so that files left by killed processes
can be told from those still being written.
"""

import os
import re
import shutil
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from backends.base.private_file import private_opener, sync_file, sync_folder

_TEMPORARY_NAME = re.compile(r"\..+\.(\d+)")
_LEFTOVER_SECONDS = 60.0
"""Longer than a file of ours goes unmodified while it is written: its process may run in another
container, where it cannot be seen from here."""


def temporary_beside(path: Path) -> Path:
    """Temporary path under which this process writes the next content of a file."""
    return path.with_name(f".{path.name}.{os.getpid()}")


@contextmanager
def replacing(path: Path, *, is_private: bool = True) -> Generator[BinaryIO]:
    """Write a file that replaces the one at path when the block ends without an exception.

    Links are followed. is_private: readable by the owner alone, from the first byte; otherwise a
    person named it: it keeps its mode, and what is no regular file is written into.

    Raises:
        OSError: it cannot be written; the old file is untouched.
    """
    if not is_private and path.exists() and not path.is_file():  # a pipe or a device
        with open(path, "wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    temporary = temporary_beside(path)
    try:
        temporary.unlink(missing_ok=True)  # left by a killed process, perhaps readable by all
        with open(temporary, "xb", opener=private_opener if is_private else None) as file:
            yield file
        if not is_private:
            with suppress(OSError):
                shutil.copymode(path, temporary)
        put_in_place(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def put_in_place(written: Path, path: Path) -> Path:
    """Rename a file that was written whole; a power cut leaves the old or the new one at path.

    Raises:
        OSError: it cannot be written out or renamed; the old file is untouched.
    """
    with open(written, "r+b") as file:  # Windows writes out only what may be changed
        sync_file(file)
    written.replace(path)
    sync_folder(path.parent)
    return path


def write_whole(path: Path, content: bytes | str, *, is_private: bool = True) -> None:
    """Replace a file's content, or leave the file untouched.

    Text is written as UTF-8 with its unpaired surrogates replaced. Links and is_private: as for
    replacing.

    Raises:
        OSError: it cannot be written.
    """
    data = content.encode(errors="replace") if isinstance(content, str) else content
    with replacing(path, is_private=is_private) as file:
        file.write(data)


def remove_leftovers(root: Path) -> None:
    """Remove temporary files of killed processes: below a folder, or root if it is such a file."""
    for path, process in _temporary_files(root):
        with suppress(OSError):
            modified = path.stat().st_mtime
            is_old = time.time() - modified > _LEFTOVER_SECONDS
            if is_old and not _may_be_writing(process, modified):
                path.unlink()


def _temporary_files(root: Path) -> Iterator[tuple[Path, int]]:
    below = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    for path in below if root.is_dir() else (root,):
        if match := _TEMPORARY_NAME.fullmatch(path.name):
            yield path, int(match[1])


def _may_be_writing(process: int, modified: float) -> bool:
    """Whether a process was already running at this time; a later one only reuses the number."""
    import psutil

    try:
        return psutil.Process(process).create_time() <= modified
    except (psutil.NoSuchProcess, OverflowError, ValueError):
        return False
    except psutil.Error:
        return True
