"""`specchat`: the app for terminals; Textual is loaded for it alone."""

import os

from typer import Context

from app.cli import options
from app.cli.terminal import process, stderr
from app.cli.terminal.exit_codes import EXIT_ERROR
from app.paths import Paths
from app.unexpected import unexpected
from backends.base import SpecchatError

_PLAIN_TERMINALS = ("dumb", "unknown", "")


def can_show_app() -> bool:
    """Whether the terminal can place a cursor; one that cannot gets the line-by-line chat."""
    return os.name == "nt" or os.environ.get("TERM", "") not in _PLAIN_TERMINALS


def open_app(context: Context) -> None:
    """Run the app; context: of `specchat chat`, whose options and settings are the app's too.

    Raises:
        UsageError: a setting or a variable cannot be used.
    """
    from app.tui.app import run

    session_options = options.session_options(context)
    given = options.answer_options(context)
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
        stderr.show_error(unexpected(error, paths))
    # Native code may still load a model, which would keep the interpreter from ending; and MLX
    # calls the interpreter when its thread is over already, which aborts one that is ending.
    process.leave(code)
