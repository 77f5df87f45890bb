"""JSON output of every command: one object with its schema version."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Context

from app.cli.command import STDOUT
from app.cli.output_file import check_writable, write_file
from app.cli.terminal import stderr, stdout
from app.printable import printable_json
from backends.base import UsageError

SCHEMA = 1


def _needs_json(context: Context, output: Path | None) -> Path | None:
    if output is not None and not context.params.get("json"):
        raise UsageError("--output needs --json", "only JSON is written to a file")
    if str(output) == STDOUT:
        return None
    if output is not None:
        check_writable(output)
    return output


Json = Annotated[
    bool, typer.Option("--json", is_eager=True, help="Print one JSON object instead of text.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        callback=_needs_json,
        help="With --json: write to a file.",
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
    write_file(output, f"{printable_json(value, 1)}\n")
    stderr.note(f"written to {output}")
