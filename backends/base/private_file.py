"""Our files and folders: only their owner can read them, and a power cut does not undo them."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def private_opener(path: str, flags: int) -> int:
    """Opener for open() that creates files readable by their owner alone."""
    return os.open(path, flags, FILE_MODE)


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents; existing ones keep their permissions.

    Raises:
        OSError: one cannot be created, or is a file.
    """
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    for path in reversed(missing):
        try:
            path.mkdir(FOLDER_MODE)
        except FileExistsError:
            if not path.is_dir():  # otherwise another process was faster
                raise
        sync_folder(path.parent)


def sync_file(file: BinaryIO) -> None:
    """Wait until the disk has what was written to a file.

    Raises:
        OSError: the disk has not taken it.
    """
    file.flush()
    if sys.platform == "darwin":
        import fcntl

        with suppress(OSError):  # not on a network disk
            fcntl.fcntl(file.fileno(), fcntl.F_FULLFSYNC)  # fsync stops at the drive's own cache
            return
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder, where a file system lets one wait."""
    if sys.platform == "win32":  # opens no folders, and keeps a log of names itself
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
