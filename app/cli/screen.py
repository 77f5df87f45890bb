"""Starts the app; only it loads Textual."""

import gc
import os

from app.cli.terminal import process, stderr
from app.cli.terminal.exit_codes import EXIT_ERROR
from app.engine.crash_report import crash_report
from app.engine.engine import Companion
from app.paths import Paths
from app.settings.app_start import AppStart
from backends.base import SpecchatError

_PLAIN_TERMINALS = ("dumb", "unknown", "")


def can_show_app() -> bool:
    """Whether the terminal can place the cursor; otherwise the line-by-line chat is used."""
    return os.name == "nt" or os.environ.get("TERM", "") not in _PLAIN_TERMINALS


def open_app(start: AppStart, companion: Companion | None = None) -> None:
    """Run the app, and end the process with its exit code. companion: what runs beside it."""
    gc.disable()  # until the app has started: all that is made now stays
    from app.tui.app import run

    paths, code = Paths.of_this_user(), EXIT_ERROR
    try:
        with process.other_screen():
            code = run(start, paths, companion)
    except SpecchatError:
        raise
    except Exception as error:
        report = crash_report(error, paths)
        remedy = f"`specchat --continue` opens the chat as it was saved. {report.remedy}"
        stderr.show_error(SpecchatError(report.what, report.why, remedy))
    # A model that is still loading would delay the end of the interpreter, and MLX calls the
    # interpreter after its thread has ended, which aborts the process.
    process.leave(code)
