"""Results of commands: one JSON object with its schema version, or text, also in a file."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Context

from app.cli.command import STDOUT
from app.cli.terminal import stderr, stdout
from app.printable import printable_json
from backends.base import SpecchatError, UsageError
from backends.base.safe_files import explained, write_whole


def writable(file: Path | None) -> Path | None:
    """The file, if any: one that cannot be written is refused before long work, not after it.

    Raises:
        UsageError: it cannot be written, or is standard output.
    """
    if file is None:
        return None
    if str(file) == STDOUT:
        raise UsageError(
            f"cannot write to {STDOUT}", "only --json writes to standard output", "Name a file."
        )
    target = Path(os.path.realpath(file))
    target = target if target.exists() else target.parent
    if file.is_dir() or not os.access(target, os.W_OK):
        why = "it is a folder" if file.is_dir() else "the folder is missing or read-only"
        raise UsageError(f"cannot write {file}", why)
    return file


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
    with explained(f"cannot write {file}", SpecchatError):
        write_whole(file, text, is_private=False)


SCHEMA = 1


def _needs_json(context: Context, output: Path | None) -> Path | None:
    if output is not None and not context.params.get("json"):
        raise UsageError("--output needs --json", "only JSON is written to a file")
    return None if str(output) == STDOUT else writable(output)


Json = Annotated[
    bool, typer.Option("--json", is_eager=True, help="Print one JSON object instead of text.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="FILE", callback=_needs_json, help="With --json: write to a file."
    ),
]


def write_result(
    facts: Mapping[str, Any],
    lines: Iterable[str],
    json: bool,
    output: Path | None,
    write_line: Callable[[str], None] = stdout.write_line,
) -> None:
    """Write a command's result: one JSON object if json, else its lines of text."""
    if json:
        write_object(facts, output)
        return
    for line in lines:
        write_line(line)


def write_object(facts: Mapping[str, Any], output: Path | None = None) -> None:
    """Write one JSON object to a file, or else to standard output.

    Raises:
        SpecchatError: it cannot be written.
    """
    value = {"schema": SCHEMA, **facts}
    if output is None:
        stdout.write_json(value)
        return
    write_json(output, value)


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Replace a file by a JSON object, as write_file does, and say so."""
    write_file(file, f"{printable_json(value, 1)}\n")
    stderr.note(f"written to {file}")
