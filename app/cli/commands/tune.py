"""`specchat models tune`: finds the fastest self-drafter of a model on this machine."""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from app import completion
from app.cli import option_values
from app.cli.options import GPU_LAYERS, KV, OFFLINE, STREAM, THREADS, argument, with_options
from app.cli.output import Json, Output, write_result
from app.cli.session import phases, show_phase
from app.cli.terminal import stderr
from app.cli.terminal.interrupt import interruptible
from app.drafting.choose.tuning import Tuning, TuningResult
from app.loading.checked_loader import CheckedLoader
from app.loading.placement import SMALLEST_CONTEXT
from app.loading.select import choose_model, expected_backend
from app.loading.session_options import SessionOptions, check_ranges
from app.loading.streaming import plan_alone
from app.paths import Paths
from backends.base import UsageError
from backends.engines.backend_selection import check_backend, forms
from backends.engines.engine_facts import free_memory
from decoding.estimation.cost import BUSY
from models.metadata.memory_bill import facts_of
from models.reference import Reference

_WIDEST = 40
"""Characters of a recipe; the figures of a longer one move to the right."""


@with_options(THREADS, GPU_LAYERS, KV, STREAM, OFFLINE)
def tune(
    context: typer.Context,
    model: Annotated[
        str, argument("MODEL", "The model to draft for.", completion.installed_models)
    ],
    json: Json = False,
    output: Output = None,
) -> None:
    """Find which layers to skip and how far to quantize for the fastest self-drafter.

    The best recipe is then used by `--draft self` with this model. Ctrl-C stops; the same
    command then measures the rest. Nothing is downloaded.
    """
    session_options = replace(option_values.session_options(context), model=model)
    paths = Paths.of_this_user()
    reference, layers = _installed(session_options, paths), session_options.gpu_layers
    lock_bytes = _lock_bytes(reference, session_options, paths)
    with phases() as (notify, stop):
        notify(f"loading {reference.name}")
        loaded = CheckedLoader(paths, notify).load(
            reference.path,
            session_options.threads,
            layers,
            session_options.backend,
            cache_type=session_options.cache_type,
            lock_bytes=lock_bytes,
        )
        if stop.is_set():
            loaded.close()
    with closing(loaded), interruptible() as stop:  # at the next step, so that no file is left
        notify = partial(show_phase, stop)
        tuning = Tuning(loaded, paths, layers, notify, stderr.note, stderr.step, lock_bytes)
        try:
            result = tuning.run()
        except KeyboardInterrupt:
            best = tuning.best_so_far
            so_far = f"the best so far is {best}" if best else "no recipe is measured yet"
            stderr.note(f"stopped: {so_far}; the same command measures the rest")
            raise
        finally:
            stderr.clear_status()
    facts = {"target": reference.name, **_as_json(result)}
    write_result(facts, _lines(reference.name, result), json, output)


def _installed(session_options: SessionOptions, paths: Paths) -> Reference:
    check_ranges(session_options)
    check_backend(session_options.backend)
    reference = choose_model(session_options.model, paths, forms(session_options.backend))
    if isinstance(reference, Reference):
        return reference
    raise UsageError(
        f"{reference.name} is not on this machine",
        "tuning measures it",
        f"Get it first: specchat models pull {reference.name}",
    )


def _lock_bytes(reference: Reference, session_options: SessionOptions, paths: Paths) -> int | None:
    """Memory for held weights of a model that streams; None for one in memory."""
    backend = expected_backend(reference, session_options.backend)
    facts = facts_of(reference.path, backend).with_cache(session_options.cache_type)
    free = free_memory(backend, session_options.gpu_layers)
    usual = SMALLEST_CONTEXT
    return plan_alone(reference, facts, session_options, paths, usual, free).lock_bytes


def _lines(name: str, result: TuningResult) -> Iterator[str]:
    unsure = "" if result.is_steady else f" ({BUSY})"
    rate = f"{1 / result.plain_seconds:.1f} tokens per second without drafting"
    yield f"recipes for {name}, {rate}{unsure}"
    width = min(max(len(ranked.recipe.text) for ranked in result.ranking), _WIDEST)
    yield f"  {'recipe':<{width}}  accepted  cost of a token  predicted speedup"
    for ranked in result.ranking:
        share = f"{100 * ranked.tried.acceptance:.0f} %"
        cost, speedup = f"{ranked.fitted_cost:.2f} of a step", f"{ranked.speedup:.2f}× plain"
        yield f"  {ranked.recipe.text:<{width}}  {share:>8}  {cost:>15}  {speedup:>17}"
    for recipe, why in result.failed.items():
        yield f"  {recipe.text}: {why}"
    yield verdict(result)


def verdict(result: TuningResult) -> str:
    """The best recipe, and whether it is expected to speed up decoding."""
    best = result.best
    words = f"{best.recipe.text} ({best.speedup:.2f}× plain predicted)"
    if result.pays:
        return f"`--draft self` is now {words}."
    accepted = f"acceptance is {100 * best.tried.acceptance:.0f} %"
    if result.needed == math.inf:
        return f"No recipe pays here, even at 100 % acceptance; best is {words}: {accepted}."
    needed = f"break-even is {100 * result.needed:.0f} %"
    return f"No recipe pays here; best is {words}: {accepted}, {needed}."


def _as_json(result: TuningResult) -> dict[str, Any]:
    return {
        "plain_seconds": result.plain_seconds,
        "steady": result.is_steady,
        "recipe": result.best.recipe.text,
        "pays": result.pays,
        "break_even": None if result.needed == math.inf else result.needed,
        "tried": [
            {
                "recipe": ranked.recipe.text,
                "acceptance": ranked.tried.acceptance,
                "draw_cost": ranked.tried.draw_cost,
                "fitted_draw_cost": ranked.fitted_cost,
                "predicted_speedup": ranked.speedup,
            }
            for ranked in result.ranking
        ],
        "failed": {recipe.text: why for recipe, why in result.failed.items()},
    }
