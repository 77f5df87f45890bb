"""Making files and folders that only their owner can read, from their first byte on."""

import os
from contextlib import suppress
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def private_opener(path: str, flags: int) -> int:
    """For open(): a file that is made is its owner's alone."""
    return os.open(path, flags, FILE_MODE)


def make_private_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing; what is there stays as it is.

    Raises:
        OSError: one cannot be made, or is a file.
    """
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    for one in reversed(missing):
        try:
            one.mkdir(FOLDER_MODE)
        except FileExistsError:
            if not one.is_dir():  # else another program was faster
                raise


def temporary_beside(path: Path) -> Path:
    """Where this process writes a file before it takes its place; models/leftovers.py knows it."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def write_whole_bytes(path: Path, data: bytes, *, is_private: bool = True) -> None:
    """Replace a file by one that holds data, or leave it as it was.

    is_private: whether it is readable by its owner alone; else the user's umask decides.

    Raises:
        OSError: it cannot be written.
    """
    fresh = temporary_beside(path)
    try:
        fresh.unlink(missing_ok=True)  # of a program that was killed, and may be readable by all
        with open(fresh, "xb", opener=private_opener if is_private else None) as file:
            file.write(data)
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise
