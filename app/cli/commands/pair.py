"""`specchat models pair`: ranks drafters for a model on this machine."""

import math
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import typer

from app import completion
from app.cli import option_values, options
from app.cli.output import Json, Output, write_result
from app.cli.session import phases
from app.drafting.choose.drafter_info import DrafterInfo, Ranking
from app.drafting.choose.drafter_words import doubt, facts_in_words
from app.engine.session_ranking import rank
from app.paths import Paths
from app.printable import one_line

_COLUMNS = 100


@options.with_options(
    options.BACKEND, options.CTX, options.THREADS, options.GPU_LAYERS, options.STREAM,
    options.OFFLINE,
)  # fmt: skip
def pair(
    context: typer.Context,
    target: Annotated[
        str, options.argument("TARGET", "The model to draft for.", completion.models)
    ],
    json: Json = False,
    output: Output = None,
) -> None:
    """Rank drafters for a model by measurements on this machine.

    Nothing is downloaded. For a pair that has not drafted yet, the break-even acceptance is shown.
    """
    session_options = replace(option_values.session_options(context), model=target)
    with phases() as (notify, _):
        ranking = rank(session_options, Paths.of_this_user(), notify)
    write_result(_as_json(ranking), _lines(ranking), json, output)


def _lines(ranking: Ranking) -> Iterator[str]:
    title = f"drafters for {ranking.target}"
    if ranking.plain_seconds is not None:
        title += f", {1 / ranking.plain_seconds:.1f} tokens per second without drafting"
        title += f" ({doubt(ranking.spread)})" if ranking.spread else ""
    elif not ranking.is_installed:
        title += f"; to measure costs, install it: specchat models pull {ranking.target}"
    yield from _wrapped(title, "")
    for pair in ranking.drafters:
        yield from _wrapped(f"{pair.name}: {'; '.join(facts_in_words(pair))}", "  ")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        one_line(text), _COLUMNS, initial_indent=indent, subsequent_indent=f"{indent}    "
    )


def _as_json(ranking: Ranking) -> dict[str, Any]:
    return {
        "target": ranking.target,
        "installed": ranking.is_installed,
        "plain_seconds": ranking.plain_seconds,
        "steady": ranking.spread == 0.0,
        "spread": ranking.spread,
        "drafters": [_pair_as_json(pair) for pair in ranking.drafters],
    }


def _pair_as_json(drafter: DrafterInfo) -> dict[str, Any]:
    break_even = drafter.break_even
    return {
        "name": drafter.name,
        "kind": drafter.kind,
        "compatible": drafter.is_compatible,
        "why": drafter.why,
        "path": str(drafter.path) if drafter.path else None,
        "installed": drafter.is_installed,
        "memory_bytes": drafter.memory_bytes,
        "fit": drafter.fit,
        "shared_vocabulary": drafter.shared,
        "draw_cost": drafter.draw_cost,
        "start_cost": drafter.start_cost if drafter.draw_cost is not None else None,
        "draw_cost_source": drafter.cost_source,
        "acceptance": drafter.acceptance,
        "acceptance_source": drafter.acceptance_source,
        "predicted_speedup": drafter.speedup,
        "break_even": None if break_even == math.inf else break_even,
        "can_pay": None if break_even is None else break_even != math.inf,
    }
