"""`specchat verify`: whether a pair is lossless on this machine."""

from dataclasses import asdict, dataclass
from typing import Any

import typer

from app.cli import option_values
from app.cli.options import SESSION, option, with_options
from app.cli.output import Json, Output, write_object
from app.cli.session import open_session
from app.cli.terminal import stderr, stdout
from app.cli.terminal.interrupt import interruptible
from app.cli.terminal.process import EXIT_DONE, EXIT_ERROR
from app.drafting import draft_spec
from app.engine.session import Session
from app.evaluation.lossless_check import Distance, Finding, verify_session
from app.settings.catalogue import LOSSY
from backends.base import DraftUnavailableError, UsageError
from decoding.planning.controller import Controller
from decoding.sampling.settings import OFF, LossyRule

_LOSSY = option(LOSSY, str, OFF, "RULE", help_text="measure how far a lossy rule is from exact")


@dataclass(frozen=True, slots=True)
class _Verdict:
    """All findings on a pair. distance: of a lossy rule, None for the exact one."""

    target: str
    drafter: str
    findings: tuple[Finding, ...]
    distance: Distance | None

    @property
    def lossless(self) -> bool:
        return all(finding.lossless for finding in self.findings)

    @property
    def text(self) -> str:
        verdict = "lossless" if self.lossless else "NOT lossless"
        if self.distance is not None and self.lossless:
            # Beside the effect of chance.
            is_beyond = self.distance.measured > self.distance.plain_most
            by_chance = "" if is_beyond else ", which chance alone may explain"
            verdict = (
                f"lossy as asked: distance {self.distance.measured:.3f} from the model's "
                f"distribution{by_chance} (total variation; as many plain replies have "
                f"{self.distance.plain_mean:.3f} on average, up to {self.distance.plain_most:.3f})"
            )
        return f"Verdict: {verdict} on this machine, {self.target} drafted by {self.drafter}."

    def as_json(self) -> dict[str, Any]:
        return {
            "lossless": self.lossless,
            "verdict": self.text,
            "target": self.target,
            "drafter": self.drafter,
            "findings": [asdict(finding) for finding in self.findings],
            "distance": asdict(self.distance) if self.distance else None,
        }


@with_options(*SESSION, _LOSSY)
def verify(context: typer.Context, json: Json = False, output: Output = None) -> None:
    """Check that drafting changes nothing: exit code 0 if lossless, 1 if not."""
    # A rule set for answers is ignored: a verdict is about the exact rule unless one is typed.
    session_options = option_values.session_options(context)
    rule = option_values.typed_lossy_rule(context)
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
        verdict = _verified(session, controller, rule, shown=not json)
    finally:
        session.close()
    if json:
        write_object(verdict.as_json(), output)
    else:
        stdout.write_line(verdict.text)
    raise typer.Exit(EXIT_DONE if verdict.lossless else EXIT_ERROR)


def _verified(
    session: Session, controller: Controller, rule: LossyRule | None, *, shown: bool
) -> _Verdict:
    """Run every check; shown: print each finding at once."""
    findings: list[Finding] = []
    distance: Distance | None = None
    with interruptible() as stop:
        for event in verify_session(session, controller, rule):
            if stop.is_set():
                raise KeyboardInterrupt
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
    stderr.clear_status()
    return _Verdict(session.reference.name, controller.name, tuple(findings), distance)
