"""Writing a report that can be sent: `--report FILE` of `bench` and `doctor`."""

import datetime
from pathlib import Path
from typing import Annotated

import typer

from app.bench.report import Report
from app.cli.output_file import check_writable, write_file
from app.cli.terminal import stderr
from app.printable import printable_json


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
    write_file(file, f"{printable_json(report.as_json(), 1)}\n")
    stderr.note(f"written to {file}")


def today() -> str:
    """The date, as in reports."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
