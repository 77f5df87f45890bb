"""`specchat verify`: is it lossless on this machine, with this model and this drafter?"""

from typing import Annotated

import typer

from app import draft_spec
from app.cli import options
from app.cli.opening import open_session
from app.cli.terminal import stderr, stdout
from app.cli.terminal.exit_codes import EXIT_DONE, EXIT_ERROR
from app.cli.terminal.interrupt import interruptible
from app.session import Session
from app.verification import Distance, Finding, verify_session
from backends.base import DraftUnavailableError, UsageError
from decoding.controller import Controller
from decoding.lossy_rule import OFF, LossyRule


def verify(
    context: typer.Context,
    model: options.Model = None,
    draft: options.Draft = "auto",
    backend: options.Backend = "auto",
    ctx: options.Ctx = None,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    offline: options.Offline = False,
    lossy: Annotated[
        str,
        typer.Option("--lossy", metavar="RULE", help="Measure what a lossy rule changes instead."),
    ] = OFF,
) -> None:
    """Check that drafting changes nothing: exit code 0 if lossless, 1 if not."""
    del lossy
    # What is set for answers does not count: whoever asks for a verdict means the exact rule.
    session_options = options.session_options(context)
    rule = options.lossy_rule(context, only_typed=True)
    if session_options.draft == draft_spec.OFF:
        raise UsageError("there is nothing to verify", "drafting is off")
    # Trees are exact under every rule: beside them a lossy one would seem less so.
    session = open_session(session_options, every_form=rule is None)
    try:
        controller = session.drafting.controller
        if controller is None:
            raise DraftUnavailableError("there is nothing to verify", session.drafting.reason)
        code = _report(session, controller, rule)
    finally:
        session.close()
    raise typer.Exit(code)


def _report(session: Session, controller: Controller, rule: LossyRule | None) -> int:
    lossless = True
    distance: Distance | None = None
    with interruptible() as stop:
        for found in verify_session(session, controller, rule):
            if stop.is_set():
                raise KeyboardInterrupt
            if isinstance(found, Distance):
                distance = found
            elif isinstance(found, Finding):
                stderr.clear_status()
                stdout.write_line(found.text)
                lossless = lossless and found.lossless
            else:
                stderr.status(found.text)
    verdict = "lossless" if lossless else "NOT lossless"
    if distance is not None and lossless:
        verdict = _as_asked(distance)
    pair = f"{session.reference.name} drafted by {controller.name}"
    stderr.clear_status()
    stdout.write_line(f"Verdict: {verdict} on this machine, {pair}.")
    return EXIT_DONE if lossless else EXIT_ERROR


def _as_asked(distance: Distance) -> str:
    """How far lossy replies are from the model's own, beside what chance alone does."""
    chance = "" if distance.is_beyond_chance else ", which chance alone may explain"
    return (
        f"lossy as asked: distance {distance.measured:.3f} from the model's distribution{chance} "
        f"(total variation; as many plain replies have {distance.plain_mean:.3f} on average, up to "
        f"{distance.plain_most:.3f})"
    )
