"""`specchat models train`: a drafter of one's own, trained on this machine for one model."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app import completion
from app.cli import option_values
from app.cli.options import BACKEND, GPU_LAYERS, KV, OFFLINE, THREADS, argument, with_options
from app.cli.output import Json, Output, write_result
from app.cli.session import phases, show_phase
from app.cli.terminal import stderr
from app.cli.terminal.interrupt import interruptible
from app.cli.terminal.process import EXIT_DONE, EXIT_ERROR
from app.loading.select import choose_model, expected_backend, lasting_name
from app.loading.session_options import SessionOptions, check_ranges
from app.paths import Paths
from app.process import lower_priority
from app.settings.catalogue import SYSTEM
from app.settings.in_effect import settings_in_effect
from app.training.methods import Choice, chosen
from app.training.plan import TRAINED, Method, Plan, duration, in_words
from app.training.run import Order, Progress, Run
from backends.engines.backend_selection import check_backend, forms
from models.reference import Reference, at_hand

if TYPE_CHECKING:
    from app.training.stages import Outcome, Stages

_PRIVATE = "This file learnt from your chats: keep it as private as them."


@with_options(BACKEND, THREADS, GPU_LAYERS, KV, OFFLINE)
def train(
    context: typer.Context,
    model: Annotated[
        str, argument("MODEL", "The model to draft for.", completion.installed_models)
    ],
    method: Annotated[
        Method, typer.Option("--method", help="What is trained; auto: what suits the model.")
    ] = Method.AUTO,
    minutes: Annotated[
        float, typer.Option("--minutes", metavar="N", min=0.1, help="Time for it all.")
    ] = 120.0,
    chats: Annotated[
        bool, typer.Option("--chats", help="Also learn from your chats; what it makes is private.")
    ] = False,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", metavar="FILE", help="Own prompts too, one a line.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--from", metavar="DRAFT", help="With --method distil: what is distilled."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of all draws.")] = 0,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Train even if it is not expected to pay here.")
    ] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Discard what an unfinished training did.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only measure and tell what it would take.")
    ] = False,
    json: Json = False,
    output: Output = None,
) -> None:
    """Train a drafter for a model on this machine, from the model's own answers.

    It says before what that takes and whether it can pay. Ctrl-C stops; the same command goes on.
    """
    options, paths = option_values.own_options(context), Paths.of_this_user()
    check_ranges(options)
    check_backend(options.backend)
    reference = at_hand(choose_model(model, paths, forms(options.backend)))
    name = lasting_name(reference)
    options = replace(options, model=name)
    backend = expected_backend(reference, options.backend)
    choice = chosen(method, reference, backend)
    order = Order(
        method=choice.method, minutes=minutes, backend=backend, seed=seed, chats=chats,
        prompts=str(prompts.absolute()) if prompts else "", base=base or "",
        system=str(settings_in_effect(paths).values.get(SYSTEM, "")),
    )  # fmt: skip
    run, outcome = Run(paths, reference.path, order, name), None
    with run.locked(anew=anew):
        lower_priority()
        plan, is_new = run.plan, run.plan is None
        if plan is None or dry_run:
            with phases() as (notify, _):
                plan = _stages(options, paths, run, notify).measured()
        told = list(_told(reference, plan, choice, anyway=anyway))
        is_wanted = plan.pays and not (method is Method.AUTO and choice.published)
        if not dry_run and (anyway or is_wanted or not is_new):
            for line in told if is_new else (f"going on with {run.stage.words}",):
                stderr.note(line)
            if is_new:
                run.begin(plan)
            outcome = _trained(options, paths, run)
            run.discard()
    facts: dict[str, Any] = {"model": reference.name, "method": choice.method}
    facts["plan"] = asdict(plan) | {
        "pays": plan.pays, "minutes": minutes, "published": choice.published or None,
        "instead": choice.instead, "lines": list(in_words(plan)),
    }  # fmt: skip
    if outcome is None:
        state = "planned" if dry_run else "cannot_pay"
        write_result({"state": state, **facts}, told, json, output)
        raise typer.Exit(EXIT_DONE if dry_run else EXIT_ERROR)
    lines = list(_result(outcome, reference))
    facts |= {"state": "trained", **asdict(outcome), "draft": outcome.name, "lines": lines}
    write_result(facts, lines, json, output)


def _stages(
    options: SessionOptions, paths: Paths, run: Run, notify: Callable[[str], None]
) -> "Stages":
    """Imported here: what trains takes a second to load, and `models list` needs none of it."""
    from app.training.stages import Stages

    return Stages(options, paths, run, notify)


def _trained(options: SessionOptions, paths: Paths, run: Run) -> "Outcome":
    """Go through what is left of a run; the first Ctrl-C ends it after its present step."""
    where = ""
    try:
        with interruptible() as stop:
            stages = _stages(options, paths, run, partial(show_phase, stop))
            with closing(stages.left(stop.is_set)) as progress:
                for one in progress:
                    _show(one)
                    share = 100 * one.done // max(one.total, 1)
                    where = f" in {one.stage.words}, {min(share, 100)} %"
            if stages.outcome is None:
                raise KeyboardInterrupt
            return stages.outcome
    except KeyboardInterrupt:
        stderr.note(f"stopped{where}: what is done is kept, and the same command goes on")
        raise
    finally:
        stderr.clear_status()


def _show(progress: Progress) -> None:
    if progress.is_paused:
        stderr.status("waits while an answer is in progress elsewhere")
        return
    left = progress.seconds_left
    words = progress.stage.words + (f", {duration(left)} left" if left is not None else "")
    stderr.progress(min(progress.done, progress.total), progress.total, words)


def _told(reference: Reference, plan: Plan, choice: Choice, *, anyway: bool) -> Iterator[str]:
    yield f"a drafter for {reference.name} by {choice.method}, as measured here:"
    yield from in_words(plan)
    if choice.published:
        yield f"there is one already: {choice.published}"
    if not plan.pays:
        yield (
            "It is not expected to pay on this machine. What drafts without it:"
            if plan.is_steady
            else "Whether it pays cannot be told while the machine is busy. What drafts without it:"
        )
        yield from (f"  {one}" for one in choice.instead)
        if not anyway:
            yield "To train nevertheless: --anyway"


def _result(outcome: "Outcome", reference: Reference) -> Iterator[str]:
    yield "accepted by place in the draft, for prompts that nothing was trained on; cumulative:"
    yield "of all drafts; conditional: of those that were accepted up to the token before"
    yield f"  {'':<{_NAME}}  T    passes  {'cumulative':<14}  {'conditional':<14}  tokens a pass"
    for result in outcome.results:
        rows = {result.name: result.overall}
        if result.name == TRAINED:
            rows |= {f"  {kind}": found for kind, found in result.by_kind.items()}
        for name, found in rows.items():
            places = f"{_shares(found.cumulative)}  {_shares(found.conditional)}"
            row = f"{result.temperature:<3g}  {found.positions:>6,}  {places}"
            error = "" if found.pass_error is None else f" ± {found.pass_error:.2f}"
            yield f"  {name:<{_NAME}}  {row}  {found.tokens_per_pass:.2f}{error}"
    best = max(outcome.rates, key=lambda name: outcome.rates[name])
    rates = ", ".join(f"{name} {rate:.1f}" for name, rate in outcome.rates.items())
    yield "tokens a second, predicted from that and the measured cost of passes:"
    yield f"  {rates}"
    if best != TRAINED:
        yield f"It does not pay here: {best} is faster, and --draft auto goes on as before."
    yield f"{outcome.name}: found by --draft auto where it pays; alone:"
    yield f"  --draft {outcome.name}"
    private = f" {_PRIVATE}" if outcome.private else ""
    yield f"Answers of {reference.name} do not change.{private}"


_NAME = 14
"""Characters of a drafter or a kind of prompt."""


def _shares(shares: Iterable[float]) -> str:
    return " ".join(f"{share:.2f}" for share in shares)
