"""Writing a report that can be sent: `--report FILE` of `bench` and `doctor`."""

import datetime
import os
from pathlib import Path
from typing import Annotated

import typer

from app.bench.report import Report
from app.cli.command import STDOUT
from app.cli.terminal import stderr
from app.printable import printable_json
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
    target = file if file.exists() else file.parent
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


def _checked(file: Path | None) -> Path | None:
    if file is not None:
        check_writable(file)
    return file


ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        callback=_checked,
        help="Write figures to send: no texts, no names of files, users or hosts.",
    ),
]


def write_report(file: Path, report: Report) -> None:
    """Write a report as JSON.

    Raises:
        SpecchatError: it cannot be written.
    """
    try:
        write_whole(file, f"{printable_json(report.as_json(), 1)}\n", is_private=False)
    except OSError as error:
        raise SpecchatError(f"cannot write {file}", error.strerror or str(error)) from error
    stderr.note(f"written to {file}")


def today() -> str:
    """The date, as in reports."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
