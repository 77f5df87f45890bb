"""Files that a person names for results, such as `--output FILE` and `--html FILE`."""

import os
from pathlib import Path

from app.cli.command import STDOUT
from backends.base import SpecchatError, UsageError
from backends.base.atomic_file import write_whole


def check_writable(file: Path) -> None:
    """Raise a usage error before a long measurement rather than after it.

    Raises:
        UsageError: the file cannot be written, or is standard output.
    """
    if str(file) == STDOUT:
        raise UsageError(
            f"cannot write to {STDOUT}",
            "only --json writes to standard output",
            "Name a file.",
        )
    target = Path(os.path.realpath(file))
    target = target if target.exists() else target.parent
    if file.is_dir() or not os.access(target, os.W_OK):
        why = "it is a folder" if file.is_dir() else "the folder is missing or read-only"
        raise UsageError(f"cannot write {file}", why)


def check_apart(*files: Path | None) -> None:
    """Raise a usage error if two results would go to one file.

    Raises:
        UsageError: two of them are the same.
    """
    given = [os.path.realpath(file) for file in files if file is not None]
    for index, file in enumerate(given):
        if file in given[:index]:
            raise UsageError("two results would be written to the same file", file)


def write_file(file: Path, text: str) -> None:
    """Replace a file, or write into what is no regular file; links are followed.

    Raises:
        SpecchatError: it cannot be written.
    """
    try:
        write_whole(file, text, is_private=False)
    except OSError as error:
        raise SpecchatError(f"cannot write {file}", error.strerror or str(error)) from error
