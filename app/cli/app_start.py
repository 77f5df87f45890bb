"""Starts the app with typed options, then variables, then the settings file."""

import faulthandler
import gc
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

from typer import Context

from app.cli.command import FROM_COMMAND_LINE, source_of
from app.cli.option_values import checked_option
from app.cli.terminal import process, stderr
from app.cli.terminal.process import EXIT_ERROR
from app.dialogue.libraries import folder_path
from app.engine.engine import Companion
from app.engine.status import crash_report
from app.loading.session_options import AUTO_DRAFT, OFF_DRAFT, SessionOptions, check_ranges
from app.paths import Paths
from app.serve.server_options import SERVER_NAMES, ServerOptions
from app.settings.answering import Answering
from app.settings.catalogue import BY_NAME, MODEL, Value
from app.settings.in_effect import AppStart, notice, preferences_of, settings_in_effect
from app.settings.presets import Presets, of_preset
from backends.base import SpecchatError, UsageError
from backends.base.safe_files import make_private_folder, private_opener, write_whole
from backends.engines.backend_selection import REMOTE, check_backend

# Reads what the app starts with: typed options, then variables, then the settings file.
#
# What resolves names is imported where a name is to be resolved: without one, the app opens sooner.


def app_start(
    context: Context, paths: Paths, *, continues: bool, no_shell: bool = False, folder: str = ""
) -> AppStart:
    """Options and settings of the app; context: of `specchat` itself.

    A setting that cannot be used is left out, with a notice.

    Raises:
        SpecchatError: a typed option cannot be used, or names no model or drafter.
    """
    settings = settings_in_effect(paths)
    typed, preset = _typed(context), str(context.params.get("preset") or "")
    named_by = ""
    if preset and (model := Presets.of(paths).get(preset).get(MODEL)) and MODEL not in typed:
        typed, named_by = {MODEL: model, **typed}, preset
    values: dict[str, Any] = {**settings.values, **typed}
    preferences = preferences_of(settings, paths.settings)
    session = SessionOptions.of(values)
    check_backend(session.backend)
    check_ranges(session)
    session, notices = _with_known_names(session, typed, paths, named_by)
    return AppStart(
        session,
        str(values.get("system", "")),
        Answering.of(values),
        replace(preferences, shell=False) if no_shell else preferences,
        continues,
        (*settings.notices, *notices),
        preset=preset,
        folder=folder_path(folder) if folder else "",
    )


def server_start(context: Context, paths: Paths) -> ServerOptions:
    """Options of the server beside the app; context: of `specchat` itself.

    Raises:
        UsageError: an option or a setting cannot be used.
    """
    values = {**settings_in_effect(paths).values, **_typed(context)}
    return ServerOptions.of(
        {
            name: checked_option(name, value)
            for name, value in values.items()
            if name in SERVER_NAMES
        }
    )


def _typed(context: Any) -> dict[str, Value]:
    names = BY_NAME.keys() & context.params.keys()
    return {
        name: context.params[name]
        for name in names
        if source_of(context, name) == FROM_COMMAND_LINE
    }


def _with_known_names(
    session: SessionOptions, typed: dict[str, Value], paths: Paths, preset: str
) -> tuple[SessionOptions, list[str]]:
    """Replace an unknown model or drafter by specchat's own choice; preset: it names the model."""
    if session.backend == REMOTE:
        return session, []  # the server knows them
    notices: list[str] = []
    if session.model:
        from backends.engines.backend_selection import forms
        from models.reference import resolve

        try:
            with of_preset(preset):
                resolve(session.model, paths.models, forms=forms(session.backend))
        except SpecchatError as error:
            if "model" in typed:
                raise
            notices.append(_notice("model", error))
            session = replace(session, model=None)
    try:
        _check_draft(session, paths)
    except SpecchatError as error:
        if "draft" in typed:
            raise
        notices.append(_notice("draft", error))
        session = replace(session, draft=AUTO_DRAFT)
    return session, notices


def _notice(name: str, error: SpecchatError) -> str:
    return notice(UsageError(f"{name} of the settings cannot be used", error.summary), name)


def _check_draft(session: SessionOptions, paths: Paths) -> None:
    """Raises UsageError if a drafter is unknown; some are known only beside their model."""
    if session.draft.lower() in (OFF_DRAFT, AUTO_DRAFT):
        return
    from app.drafting import draft_spec
    from app.loading.select import choose_model
    from backends.engines.backend_selection import forms

    wanted = forms(session.backend)
    target = None
    with suppress(SpecchatError):  # the app reports it, and can load another
        target = choose_model(session.model, paths, wanted)
    draft_spec.parse(session.draft, paths, target, wanted)


_PLAIN_TERMINALS = ("dumb", "unknown", "")


def can_show_app() -> bool:
    """Whether the terminal can place the cursor; otherwise the line-by-line chat is used."""
    return os.name == "nt" or os.environ.get("TERM", "") not in _PLAIN_TERMINALS


@contextmanager
def _noting_crashes(paths: Paths) -> Generator[tuple[str, ...]]:
    """Note where native code ends the process within the block; yields what to tell of the last.

    Models then run in a child again before they run here: so a GPU that fails is found out.
    """
    told: tuple[str, ...] = ()
    with ExitStack() as held:
        with suppress(OSError):
            make_private_folder(paths.data)
            file = held.enter_context(open(paths.crash, "ab+", opener=private_opener))
            file.seek(0)
            if noted := file.read().decode(errors="replace"):
                write_whole(paths.last_error, noted)
                paths.proofs.unlink(missing_ok=True)
                cause = noted.partition("\n")[0].removeprefix("Fatal Python error: ")
                words = f"The last start ended in a crash ({cause}), and models are checked anew."
                told = (f"{words} Details: {paths.last_error}",)
            file.truncate(0)
            held.callback(file.truncate, 0)  # a fault that was handled is none
            faulthandler.enable(file, all_threads=False)
            held.callback(faulthandler.disable)
        yield told


def open_app(start: AppStart, companion: Companion | None = None) -> None:
    """Run the app, and end the process with its exit code. companion: what runs beside it."""
    gc.disable()  # until the app has started: all that is made now stays
    from app.tui.app import run

    paths, code = Paths.of_this_user(), EXIT_ERROR
    try:
        with _noting_crashes(paths) as told, process.other_screen():
            code = run(replace(start, notices=(*start.notices, *told)), paths, companion)
    except SpecchatError:
        raise
    except Exception as error:
        report = crash_report(error, paths)
        remedy = f"`specchat --continue` opens the chat as it was saved. {report.remedy}"
        stderr.show_error(SpecchatError(report.what, report.why, remedy))
    # A model that is still loading would delay the end of the interpreter, and MLX calls the
    # interpreter after its thread has ended, which aborts the process.
    process.leave(code)
