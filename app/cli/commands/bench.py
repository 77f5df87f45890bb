"""`specchat bench`: measures the gain of drafting over plain decoding on this machine."""

import json as json_format
import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeGuard

import typer

from app import completion
from app.bench.comparison import Comparison, old_bench
from app.bench.methods import Methods, methods
from app.bench.report import measured, public_draft, public_model
from app.bench.report import report as report_of
from app.bench.results import Bench
from app.bench.runner import Runner, round_seconds, size_in_words, slow_suite
from app.bench.suites import SUITES, Suite, limited, suite_of
from app.bench.wording import table
from app.cli import option_values, options
from app.cli.command import STDOUT
from app.cli.output import Output, check_apart, writable, write_file, write_json
from app.cli.report_file import ReportFile, machine, version
from app.cli.session import open_session
from app.cli.terminal import stderr, stdout
from app.cli.terminal.interrupt import interruptible
from app.cli.terminal.process import EXIT_INTERRUPTED
from app.engine.session import Session
from app.loading.session_options import OFF_DRAFT
from app.paths import Paths
from app.printable import printable
from backends.base import UsageError


@options.with_options(*options.SESSION)
def bench(
    context: typer.Context,
    suite: Annotated[
        str,
        typer.Option(
            "--suite",
            metavar="NAME|FILE",
            help="quick (minutes), full (an hour or more), or published questions: spec-bench, "
            "mt-bench, speed-bench, or a file of that form.",
            autocompletion=completion.suites,
        ),
    ] = "quick",
    json: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="[FILE]",
            is_eager=True,
            help="Every figure as one JSON object, instead of the table or into a file.",
        ),
    ] = None,
    output: Output = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with charts.")
    ] = None,
    report: ReportFile = None,
    questions: Annotated[
        int | None, typer.Option("--questions", metavar="N", min=1, help="Of each kind, at most.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", min=2, help="Of an answer, at most.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", metavar="OLD.json", help="Tell what changed since that --json."),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Discard what the same bench measured before it ended.")
    ] = False,
) -> None:
    """Measure lookup, self, auto and --draft against plain decoding, by kind of prompt."""
    paths = Paths.of_this_user()
    chosen = limited(suite_of(suite, paths.suites), questions, max_tokens)
    if report is not None and suite not in SUITES:
        raise UsageError("--report is for named suites", "a file's kinds may tell of its user")
    before = old_bench(compare, chosen) if compare is not None else None
    json = output or json
    check_apart(*map(writable, (json if _is_file(json) else None, html, report)))
    session_options = option_values.session_options(context)
    session = open_session(session_options, chosen.context)
    try:
        environment = session.environment(stderr.status)
        if session.budget is not None:  # the bench builds its own drafters
            session.redraft(OFF_DRAFT, stderr.status)
        with tempfile.TemporaryDirectory() as scratch:
            given = session_options.draft
            compared = methods(session, environment, given, Path(scratch), chosen)
            with closing(compared):
                stderr.note(f"comparing {', '.join(method.name for method in compared.chosen)}")
                if session.budget is not None and not chosen.is_published:
                    chosen = _slow_suite(chosen, compared)
                runner = Runner(session, compared, chosen, paths.benches)
                if anew:
                    runner.forget()
                finished = _measure(runner)
                changes = Comparison.of(before, runner.bench) if before else None
                _report(runner.bench, json, html, changes)
                if report is not None:
                    write_json(report, _to_send(runner.bench, session))
                if finished:
                    runner.forget()
    finally:
        session.close()
    if not finished:
        raise typer.Exit(EXIT_INTERRUPTED)


def _slow_suite(suite: Suite, compared: Methods) -> Suite:
    """As much of a suite as a model that streams has time for; says how long a round takes."""
    if compared.plain_seconds is None:
        raise UsageError("there is nothing to compare", "; ".join(compared.notes))
    count = len(compared.chosen)
    chosen = slow_suite(suite, compared.plain_seconds, count)
    minutes = round_seconds(chosen, compared.plain_seconds, count) / 60
    words = f"a round takes at most about {minutes:.0f} minutes: {size_in_words(chosen)}"
    stderr.note(words)
    return chosen


def _is_file(name: Path | None) -> TypeGuard[Path]:
    return name is not None and str(name) != STDOUT


def _measure(runner: Runner) -> bool:
    """Run the suite under a progress bar; False if it was stopped."""
    with interruptible() as stop:
        for progress in runner.run():
            stderr.progress(*progress)
            if stop.is_set():
                if not runner.bench.runs:
                    stderr.note("stopped before anything was measured")
                    raise typer.Exit(EXIT_INTERRUPTED)
                stderr.note("stopped: the figures cover what was measured so far")
                stderr.note("the same command goes on with it; --anew begins again")
                return False
    return True


def _report(
    result: Bench, json: Path | None, html: Path | None, changes: Comparison | None
) -> None:
    stderr.clear_status()
    compared = changes.lines() if changes else []
    told = result.as_json() | {"comparison": asdict(changes) if changes else None}
    if json is not None and not _is_file(json):
        stdout.write_json(told)
    else:
        stdout.write(printable("\n".join([table(result), *compared, ""])))
    if _is_file(json):
        write_file(json, json_format.dumps(told, indent=1))
    if html is not None:
        from app.bench.page import page  # and Jinja, which no other output needs

        write_file(html, page(result, compared))


def _to_send(result: Bench, session: Session) -> dict[str, Any]:
    """A bench without names that are not published."""
    given, info = session.options.draft, session.model.info
    names = {given: public_draft(session.spec(given))}
    found = measured(result, public_model(session.reference), info, names)
    return report_of(version("specchat"), result.date, machine(session.bandwidth), **found)
