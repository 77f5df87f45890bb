"""How every command reads its arguments and lays out its help."""

import shutil
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import typer
from typer import core
from typer._click.formatting import HelpFormatter  # pyright: ignore[reportPrivateUsage]

from app.settings.catalogue import BY_NAME, Kind, from_variable, shown
from backends.base import UsageError

FROM_COMMAND_LINE, FROM_VARIABLE, FROM_DEFAULT = "COMMANDLINE", "ENVIRONMENT", "DEFAULT"
STDOUT = "-"

_KINDS = {
    "int_parsing": Kind.INTEGER,
    "int_parsing_size": Kind.INTEGER,
    "int_from_float": Kind.INTEGER,
    "float_parsing": Kind.NUMBER,
}
"""What Pydantic's errors say that a value is not."""

_NARROW_COLUMNS = 60
_STACKED_COLUMNS = 4
"""Width of the first column where descriptions go below the options."""

_SUMMARY_CHARACTERS = 200
"""Longest summary in the list of commands; none is truncated."""


def source_of(context: Any, name: str) -> str:
    """Where a parameter's value came from, "" where it was not read yet."""
    source = context.get_parameter_source(name)
    return "" if source is None else source.name


def keep_defaults(parameters: Iterable[Any]) -> None:
    """Take defaults as they are: to check them, Typer would load Pydantic, which takes long."""
    for parameter in parameters:
        parameter.process_value = partial(_processed, parameter, parameter.process_value)


def _processed(parameter: Any, process: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    is_default = source_of(ctx, parameter.name) == FROM_DEFAULT
    is_simple = not parameter.required and parameter.callback is None
    return value if is_default and is_simple else process(ctx, value)


class HelpLayout(HelpFormatter):
    """Lays help out for the terminal: on a narrow one, descriptions go below the options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        columns = shutil.get_terminal_size().columns
        self._is_narrow = columns < _NARROW_COLUMNS
        if self._is_narrow:
            self.width = columns - 2

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl(rows, _STACKED_COLUMNS if self._is_narrow else col_max, col_spacing)


class _Parsing:
    """Reads arguments; an error names the variable that holds an unusable value."""

    def get_short_help_str(self, limit: int = _SUMMARY_CHARACTERS) -> str:
        parent: Any = super()
        return parent.get_short_help_str(max(limit, _SUMMARY_CHARACTERS))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.formatter_class = HelpLayout
        parent: Any = super()
        try:
            return parent.parse_args(ctx, args)
        except typer.BadParameter as error:
            name = error.param.name if error.param else ""
            if name in BY_NAME and source_of(ctx, name) == FROM_VARIABLE:
                from_variable(name)  # raises a UsageError that names the variable
            raise _in_words(error) from error


class Command(_Parsing, core.TyperCommand): ...


class Group(_Parsing, core.TyperGroup): ...


def _in_words(error: typer.BadParameter) -> Exception:
    """The error about a value without Pydantic's words; any other as it is."""
    details = getattr(error.__cause__, "errors", list[Any])()
    if not details or error.param is None:
        return error
    kind, given = _KINDS.get(details[0]["type"]), details[0]["input"]
    said = details[0]["msg"].removeprefix("Value error, ").rstrip(".")
    said = said.replace("Input should be", "it must be").replace(f"{given!r} is not", "it must be")
    name = max(error.param.opts, key=len)
    name = name if name.startswith("-") else name.upper()
    return UsageError(f"{name} cannot be {shown(given)}", f"it must be {kind}" if kind else said)


class OptionalJsonFile(Command):
    """A command with `--json [FILE]`, which writes to standard output without a file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        read: list[str] = []
        for argument, following in zip(args, [*args, "--"][1:], strict=True):
            bare = argument == "--json" and following.startswith("-") and following != STDOUT
            read.append(f"--json={STDOUT}" if bare else argument)
        return super().parse_args(ctx, read)
