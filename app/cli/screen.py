"""Starts the app; only it loads Textual."""

import os

from typer import Context

from app.cli import option_values
from app.cli.terminal import process, stderr
from app.cli.terminal.exit_codes import EXIT_ERROR
from app.engine.crash_report import crash_report
from app.paths import Paths
from backends.base import SpecchatError

_PLAIN_TERMINALS = ("dumb", "unknown", "")


def can_show_app() -> bool:
    """Whether the terminal can place the cursor; otherwise the line-by-line chat is used."""
    return os.name == "nt" or os.environ.get("TERM", "") not in _PLAIN_TERMINALS


def open_app(context: Context) -> None:
    """Run the app with the options and settings of `specchat chat`, which is context's command.

    Raises:
        UsageError: a setting or a variable cannot be used.
    """
    from app.tui.app import run

    session_options = option_values.session_options(context)
    given = option_values.answer_options(context)
    paths, code = Paths.of_this_user(), EXIT_ERROR
    try:
        with process.other_screen():
            answering = given.answering
            code = run(
                session_options, paths, given.system, answering.sampling, answering.max_tokens
            )
    except SpecchatError:
        raise
    except Exception as error:
        stderr.show_error(crash_report(error, paths))
    # A model that is still loading would delay the end of the interpreter, and MLX calls the
    # interpreter after its thread has ended, which aborts the process.
    process.leave(code)
