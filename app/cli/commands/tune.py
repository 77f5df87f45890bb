"""`specchat models tune`: which copy of a model drafts for it the fastest on this machine."""

import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer

from app.cli import options
from app.cli.opening import phases
from app.cli.terminal import stderr, stdout
from app.cli.terminal.interrupt import interruptible
from app.model_choice import choose_model
from app.paths import Paths
from app.proven_models import ProvenModels
from app.session_options import SessionOptions, check_ranges
from app.tuning import Tuning, TuningResult
from backends.base import UsageError
from backends.choice import check_backend, forms
from decoding.cost import BUSY
from models.recipe_search import Ranked
from models.reference import Reference

_WIDEST = 40
"""Characters of a recipe, beyond which the figures of its line stand further right."""


def tune(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model to draft for.")],
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    json: Annotated[bool, typer.Option("--json", help="JSON in place of text.")] = False,
) -> None:
    """Find which layers to skip and how far to quantise for the fastest self-drafter.

    What is found is then what `--draft self` means for this model. Ctrl-C stops it; the same
    command then measures the rest. Nothing is downloaded.
    """
    session_options = replace(options.session_options(context), model=model)
    paths = Paths.of_this_user()
    reference, layers = _here(session_options, paths), session_options.gpu_layers
    with phases() as (notify, stop):
        notify(f"loading {reference.name}")
        loaded = ProvenModels(paths, notify).load(
            reference.path, session_options.threads, layers, session_options.backend
        )
        if stop.is_set():
            loaded.close()
    with closing(loaded), _steps() as notify:
        tuning = Tuning(loaded, paths, layers, notify, _say, _tell)
        try:
            found = tuning.run()
        except KeyboardInterrupt:
            _say(_stopped(tuning))
            raise
    if json:
        stdout.write_json({"schema": 1, "target": reference.name, **_as_json(found)})
        return
    for line in _lines(reference.name, found):
        stdout.write_line(line)


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """What shows each step; the first Ctrl-C ends it at the next, so that no file is left."""
    with interruptible() as stop:

        def notify(text: str) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            stderr.status(text)

        try:
            yield notify
        finally:
            stderr.clear_status()


def _say(text: str) -> None:
    stderr.note(text)


def _tell(text: str) -> None:
    stderr.step(text)


def _stopped(tuning: Tuning) -> str:
    best = tuning.best_so_far or "no recipe is measured yet"
    so_far = f"the best so far is {best}" if tuning.best_so_far else best
    return f"stopped: {so_far}; the same command measures the rest"


def _here(session_options: SessionOptions, paths: Paths) -> Reference:
    check_ranges(session_options)
    check_backend(session_options.backend)
    found = choose_model(session_options.model, paths, forms(session_options.backend))
    if isinstance(found, Reference):
        return found
    raise UsageError(
        f"{found.name} is not on this machine",
        "tuning measures it",
        f"Get it first: specchat models pull {found.name}",
    )


def _lines(name: str, found: TuningResult) -> Iterator[str]:
    unsure = "" if found.is_steady else f" ({BUSY})"
    yield f"recipes for {name}, {1 / found.plain_seconds:.1f} tokens per second undrafted{unsure}"
    width = min(max(len(one.recipe.text) for one in found.ranking), _WIDEST)
    yield f"  {'recipe':<{width}}  accepted  cost of a token  predicted speedup"
    for one in found.ranking:
        share = f"{100 * one.tried.acceptance:.0f} %"
        cost, speedup = f"{one.fitted_cost:.2f} of a step", f"{one.speedup:.2f}× plain"
        yield f"  {one.recipe.text:<{width}}  {share:>8}  {cost:>15}  {speedup:>17}"
    for recipe, why in found.failed.items():
        yield f"  {recipe.text}: {why}"
    yield verdict(found)


def verdict(found: TuningResult) -> str:
    """The best recipe, and whether it is predicted to pay."""
    best = found.best
    words = f"{best.recipe.text} ({best.speedup:.2f}× plain predicted)"
    if found.pays:
        return f"`--draft self` is now {words}."
    has = f"it has {100 * best.tried.acceptance:.0f} %"
    if found.needed == math.inf:
        return f"No recipe pays here; best is {words}: not even if all were accepted, and {has}."
    needs = f"it needs {100 * found.needed:.0f} % accepted"
    return f"No recipe pays here; best is {words}: {needs}, and {has}."


def _as_json(found: TuningResult) -> dict[str, Any]:
    return {
        "plain_seconds": found.plain_seconds,
        "steady": found.is_steady,
        "recipe": found.best.recipe.text,
        "pays": found.pays,
        "break_even": None if found.needed == math.inf else found.needed,
        "tried": [_ranked_as_json(one) for one in found.ranking],
        "failed": {recipe.text: why for recipe, why in found.failed.items()},
    }


def _ranked_as_json(one: Ranked) -> dict[str, Any]:
    return {
        "recipe": one.recipe.text,
        "acceptance": one.tried.acceptance,
        "draw_cost": one.tried.draw_cost,
        "fitted_draw_cost": one.fitted_cost,
        "predicted_speedup": one.speedup,
    }
