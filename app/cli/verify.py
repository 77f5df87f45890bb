"""`specchat verify`: is it lossless on this machine, with this model and this drafter?"""

import typer

from app import draft_spec
from app.cli import options, terminal
from app.cli.interrupt import interruptible
from app.cli.opening import open_session
from app.session import Session
from app.verification import Finding, verify_session
from backends.base import DraftUnavailableError, UsageError
from decoding.draft import Drafter


def verify(
    context: typer.Context,
    model: options.Model = None,
    draft: options.Draft = "auto",
    backend: options.Backend = "auto",
    ctx: options.Ctx = None,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    offline: options.Offline = False,
) -> None:
    """Check that drafting changes nothing: exit code 0 if lossless, 1 if not."""
    session_options = options.session_options(context)
    if session_options.draft == draft_spec.OFF:
        raise UsageError("there is nothing to verify", "drafting is off")
    session = open_session(session_options)
    try:
        drafter = session.drafting.chain
        if drafter is None:
            raise DraftUnavailableError("there is nothing to verify", session.drafting.reason)
        code = _report(session, drafter)
    finally:
        session.close()
    raise typer.Exit(code)


def _report(session: Session, drafter: Drafter) -> int:
    lossless = True
    with interruptible() as stop:
        for found in verify_session(session, drafter):
            if stop.is_set():
                raise KeyboardInterrupt
            if isinstance(found, Finding):
                terminal.clear_status()
                terminal.say(f"{found.text}\n")
                lossless = lossless and found.lossless
            else:
                terminal.status(found.text)
    verdict = "lossless" if lossless else "NOT lossless"
    pair = f"{session.reference.name} drafted by {drafter.name}"
    terminal.clear_status()
    terminal.say(f"Verdict: {verdict} on this machine, {pair}.\n")
    return terminal.EXIT_DONE if lossless else terminal.EXIT_ERROR
