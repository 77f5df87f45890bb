"""`specchat serve`: answers other programs over HTTP."""

import sys
from threading import Event

import typer

from app.cli import option_values, options
from app.cli.terminal import process, stderr
from app.cli.terminal.exit_codes import EXIT_INTERRUPTED
from app.cli.terminal.interrupt import deferred
from app.engine.engine import Engine
from app.engine.engine_status import Loaded, Phase, where_it_runs
from app.paths import Paths
from app.serve.serving import serving
from app.settings.answering import Answering
from app.settings.in_effect import settings_in_effect
from backends.base import ModelError

_POLL_SECONDS = 0.1
_CLOSE_SECONDS = 0.8
"""How long the end waits for the engine."""

SWITCH_SECONDS = 0.0005
"""Thread switch interval; Python's default of 5 ms is as long as a token."""


@options.with_options(*options.SESSION, *options.SERVER)
def serve(context: typer.Context) -> None:
    """Answer other programs over HTTP, in OpenAI's dialect, until Ctrl+C.

    It listens on this machine alone unless --key-file names a file that holds a key.
    """
    session_options = option_values.session_options(context)
    server_options = option_values.server_options(context)
    paths = Paths.of_this_user()
    defaults = Answering.of(settings_in_effect(paths).values)
    engine = Engine(session_options, paths)
    sys.setswitchinterval(SWITCH_SECONDS)
    with serving(server_options, defaults)(engine) as address, deferred() as stop:
        try:
            engine.start()
            loaded = _loaded(engine, stop)
            if loaded is not None:
                _introduce(address, loaded, defaults)
            while not stop.wait(_POLL_SECONDS):
                pass
        finally:
            is_closed = engine.close(_CLOSE_SECONDS)
        if not is_closed:  # a pass that takes longer would delay the end of the interpreter
            process.leave(EXIT_INTERRUPTED)


def _loaded(engine: Engine, stop: Event) -> Loaded | None:
    """What was loaded, shown as it proceeds; None if the user interrupted it.

    Raises:
        SpecchatError: it could not be loaded.
    """
    try:
        while not stop.wait(_POLL_SECONDS):
            status = engine.status
            if status.phase is Phase.READY and status.loaded is not None:
                return status.loaded
            if status.phase is Phase.FAILED:
                raise status.error or ModelError("no model was loaded")
            stderr.status(status.text)
        return None
    finally:
        stderr.clear_status()


def _introduce(address: str, loaded: Loaded, defaults: Answering) -> None:
    model = f"{loaded.name}, {where_it_runs(loaded.info)}, context {loaded.context_size:,} tokens"
    drafters = ", ".join(loaded.drafters) or f"none: {loaded.missing or 'drafting is off'}"
    stderr.note(f"address   {address}/v1 (Ctrl+C ends it)")
    stderr.note(f"model     {model}")
    stderr.note(f"drafters  {drafters}")
    rule = defaults.sampling.lossy_in_effect
    for note in (*loaded.notes, rule.warning if rule else ""):
        if note:
            stderr.note(f"note: {note}")
