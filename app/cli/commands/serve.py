"""`specchat serve`: answers other programs over HTTP."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from threading import Event
from threading import enumerate as running_threads
from typing import Annotated

import typer

from app import completion
from app.ahead.expected import Permission
from app.cli import option_values, options
from app.cli.terminal import process, stderr, stdout
from app.cli.terminal.interrupt import deferred
from app.cli.terminal.process import EXIT_INTERRUPTED
from app.engine.engine import Engine
from app.engine.status import Loaded, Phase, where_it_runs
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.serve.clients import (
    CLIENT_NAMES,
    Endpoint,
    address_of,
    check_client,
    client_config,
    served_model,
)
from app.serve.server_options import ServerOptions
from app.serve.serving import serving
from app.settings.answering import Answering
from app.settings.catalogue import KEY_VARIABLE
from app.settings.in_effect import ServedAt, settings_in_effect
from backends.base import ModelError

_POLL_SECONDS = 0.1
_CLOSE_SECONDS = 0.8
"""How long the end waits for the engine."""

SWITCH_SECONDS = 0.0005
"""Thread switch interval; Python's default of 5 ms is as long as a token."""


@options.with_options(*options.SESSION, options.PARALLEL, *options.SERVER, *options.SERVED)
def serve(
    context: typer.Context,
    print_config: Annotated[
        str | None,
        typer.Option(
            "--print-config",
            metavar="CLIENT",
            help=f"Print what to paste into {CLIENT_NAMES}, and serve nothing.",
            autocompletion=completion.clients,
        ),
    ] = None,
) -> None:
    """Answer other programs over HTTP, as OpenAI, Anthropic and Ollama do, until Ctrl+C.

    It listens on this machine alone unless --key-file names a file that holds a key.
    """
    session_options = option_values.own_options(context)
    server_options = option_values.server_options(context)
    if server_options.models:
        session_options = replace(session_options, model=server_options.models[0])
    paths = Paths.of_this_user()
    if print_config is not None:
        _print_config(print_config, session_options, server_options, paths)
        return
    defaults = Answering.of(settings_in_effect(paths).values)
    engine = Engine(session_options, paths, may_read=Permission())
    sys.setswitchinterval(SWITCH_SECONDS)
    with deferred() as stop:
        try:
            with serving(server_options, defaults)(engine) as served_at:
                engine.start()
                if (loaded := loaded_by(engine, stop)) is not None:
                    from app.serve.served_engine import template_note

                    missing = engine.status.error
                    told = template_note(engine), missing.summary if missing else ""
                    _introduce(served_at, loaded, defaults, told)
                    if others := server_options.models[1:]:
                        stderr.note(f"on demand {', '.join(others)}")
                while not stop.wait(5 * _POLL_SECONDS):
                    pass
        finally:
            engine.close(_CLOSE_SECONDS)
        # A pass that takes longer would delay the end of the interpreter.
        if any(one.name == "engine" for one in running_threads()):
            process.leave(EXIT_INTERRUPTED)


def _print_config(
    client: str, session_options: SessionOptions, server_options: ServerOptions, paths: Paths
) -> None:
    """Print what a client needs on standard output, and where it belongs on standard error."""
    check_client(client)
    address = address_of(server_options.host, server_options.port)
    name, context = served_model(session_options, paths)
    config = client_config(client, Endpoint(address, name, context, bool(server_options.key)))
    stderr.note(f"paste into: {config.place}")
    if server_options.key and KEY_VARIABLE in f"{config.text}{config.then}":
        stderr.note(f"first:      set {KEY_VARIABLE} to the key of the server")
    stdout.write(config.text)
    if config.then:
        stderr.note(f"then:       {config.then}")


def _introduce(
    served_at: ServedAt, loaded: Loaded, defaults: Answering, told: Sequence[str]
) -> None:
    model = f"{loaded.name}, {where_it_runs(loaded.info)}, context {loaded.context_size:,} tokens"
    drafters = ", ".join(loaded.drafters) or f"none: {loaded.missing or 'drafting is off'}"
    stderr.note(f"address   {served_at.words} (Ctrl+C ends it)")
    stderr.note(f"model     {model}")
    stderr.note(f"drafters  {drafters}")
    rule = defaults.sampling.lossy_in_effect
    stderr.remarks(*loaded.notes, *told, rule.warning if rule else "")


def loaded_by(engine: Engine, stop: Event) -> Loaded | None:
    """What an engine has loaded, shown as it proceeds; None if the user interrupted it."""
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
