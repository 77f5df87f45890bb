"""Files and folders that only their owner can read, from the first byte on."""

import os
from pathlib import Path

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
