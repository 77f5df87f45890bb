"""`specchat verify`: whether a pair is lossless on this machine."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from app.cli import option_values
from app.cli.options import SESSION, option, with_options
from app.cli.output import Json, Output, write_result
from app.cli.session import open_session, phases
from app.cli.terminal import stderr, stdout
from app.cli.terminal.interrupt import interruptible
from app.cli.terminal.process import EXIT_DONE, EXIT_ERROR, EXIT_INTERRUPTED
from app.drafting import draft_spec
from app.engine.session import Session
from app.evaluation.lossless_check import Distance, Finding, expected_seconds, verify_session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.settings.catalogue import LOSSY
from backends.base import DraftUnavailableError, UsageError
from decoding.planning.controller import Controller
from decoding.sampling.settings import OFF, LossyRule

_LOSSY = option(LOSSY, str, OFF, "RULE", help_text="measure how far a lossy rule is from exact")

_REFERENCE_HELP = "a server that runs the same model without drafting, for --backend remote"

_LONG = 90.0
"""Seconds from which a time is told in minutes."""


@with_options(*SESSION, _LOSSY)
def verify(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="fewer and shorter checks")] = False,
    reference: Annotated[
        str | None, typer.Option("--reference", metavar="URL", help=_REFERENCE_HELP)
    ] = None,
    json: Json = False,
    output: Output = None,
) -> None:
    """Check that drafting changes nothing: exit code 0 if lossless, 1 if not."""
    # A rule set for answers is ignored: a verdict is about the exact rule unless one is typed.
    session_options = option_values.session_options(context)
    rule = option_values.typed_lossy_rule(context)
    if session_options.asks_server:
        _tell(_of_server(session_options, reference, shown=not json), json, output)
    if session_options.draft == draft_spec.OFF:
        raise UsageError("there is nothing to verify", "drafting is off")
    # Trees are exact under every rule: beside them a lossy one would seem less so.
    session = open_session(session_options, every_form=rule is None)
    try:
        controller = session.drafting.controller
        if controller is None:
            raise DraftUnavailableError(
                "there is nothing to verify", session.drafting.status.reason
            )
        verdict = _verified(session, controller, rule, is_quick=quick, shown=not json)
    finally:
        session.close()
    _tell(verdict, json, output)


def _tell(verdict: dict[str, Any], json: bool, output: Path | None) -> NoReturn:
    """Write a verdict, and exit with its code."""
    write_result(verdict, [verdict["verdict"]], json, output)
    if not verdict["lossless"]:
        raise typer.Exit(EXIT_ERROR)
    raise typer.Exit(EXIT_DONE if verdict["complete"] else EXIT_INTERRUPTED)


def _of_server(options: SessionOptions, reference: str | None, *, shown: bool) -> dict[str, Any]:
    """The verdict on a server, by another one that runs its model without drafting."""
    from app.engine.remote_session import open_remote
    from app.evaluation.remote_check import Compared, compare, verdict_on

    if reference is None:
        why = "only a server that runs the same model without drafting tells what it alone says"
        raise UsageError("--backend remote needs --reference URL", why)
    with phases() as (notify, _):
        paths = Paths.of_this_user()
        server = open_remote(options, paths, notify)
        plain = open_remote(replace(options, url=reference), paths, notify)
    found = list[Compared]()
    with interruptible() as stop:
        for one in compare(server, plain, stop.is_set):
            if isinstance(one, str):
                stderr.status(one)
                continue
            found.append(one)
            stderr.clear_status()
            if shown:
                stdout.write_line(one.text)
        stderr.clear_status()
        return verdict_on(server, plain, found, is_complete=not stop.is_set())


def _verified(
    session: Session, controller: Controller, rule: LossyRule | None, *, is_quick: bool, shown: bool
) -> dict[str, Any]:
    """All findings on a pair, or those until Ctrl-C; shown: print each at once."""
    findings: list[Finding] = []
    distance: Distance | None = None
    if (seconds := expected_seconds(session, is_quick=is_quick)) is not None:
        how_long = f"about {seconds / 60:.0f} minutes" if seconds > _LONG else "about a minute"
        stderr.note(f"{how_long} if nothing else runs; Ctrl+C ends it with a verdict so far")
    with interruptible() as stop:
        checks = verify_session(
            session, controller, rule, is_quick=is_quick, is_stopped=stop.is_set
        )
        for event in checks:
            match event:
                case Distance():
                    distance = event
                case Finding():
                    findings.append(event)
                    stderr.clear_status()
                    if shown:
                        stdout.write_line(event.text)
                case _:
                    stderr.status(event)
        is_complete = not stop.is_set()
    stderr.clear_status()
    lossless = all(finding.lossless for finding in findings)
    target, drafter = session.reference.name, controller.name
    verdict = f"Verdict{'' if is_complete else ' so far'}: {_in_words(lossless, distance)}"
    return {
        "lossless": lossless,
        "complete": is_complete,
        "verdict": f"{verdict} on this machine, {target} drafted by {drafter}.",
        "target": target,
        "drafter": drafter,
        "findings": [asdict(finding) for finding in findings],
        "distance": asdict(distance) if distance else None,
    }


def _in_words(lossless: bool, distance: Distance | None) -> str:
    """distance: of a lossy rule, None for the exact one."""
    if distance is None or not lossless:
        return "lossless" if lossless else "NOT lossless"
    # Beside the effect of chance.
    is_beyond = distance.measured > distance.plain_most
    by_chance = "" if is_beyond else ", which chance alone may explain"
    return (
        f"lossy as asked: distance {distance.measured:.3f} from the model's "
        f"distribution{by_chance} (total variation; as many plain answers have "
        f"{distance.plain_mean:.3f} on average, up to {distance.plain_most:.3f})"
    )
