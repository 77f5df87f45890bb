"""`specchat models pair`: which drafter suits a model on this machine."""

import math
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import typer

from app.cli import options
from app.cli.opening import phases
from app.cli.terminal import stdout
from app.pair_words import doubt, facts_in_words
from app.pairing import rank
from app.paths import Paths
from app.printable import one_line
from app.ranking import Pair, Ranking

_COLUMNS = 100


def pair(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The model to draft for.")],
    backend: options.Backend = "auto",
    ctx: options.Ctx = None,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    json: Annotated[bool, typer.Option("--json", help="JSON in place of text.")] = False,
) -> None:
    """Rank drafters for a model by what was measured here.

    Nothing is downloaded. Where a pair never drafted, the share of accepted tokens from which it
    pays is shown.
    """
    session_options = replace(options.session_options(context), model=target)
    with phases() as (notify, _):
        found = rank(session_options, Paths.of_this_user(), notify)
    if json:
        stdout.write_json(_as_json(found))
        return
    for line in _lines(found):
        stdout.write_line(line)


def _lines(found: Ranking) -> Iterator[str]:
    title = f"drafters for {found.target}"
    if found.plain_seconds is not None:
        title += f", {1 / found.plain_seconds:.1f} tokens per second undrafted"
        title += f" ({doubt(found.spread)})" if found.spread else ""
    elif not found.is_installed:
        title += f": costs are measured once it is here (specchat models pull {found.target})"
    yield from _wrapped(title, "")
    for one in found.pairs:
        yield from _wrapped(f"{one.drafter.name}: {'; '.join(facts_in_words(one))}", "  ")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        one_line(text), _COLUMNS, initial_indent=indent, subsequent_indent=f"{indent}    "
    )


def _as_json(found: Ranking) -> dict[str, Any]:
    return {
        "schema": 1,
        "target": found.target,
        "installed": found.is_installed,
        "plain_seconds": found.plain_seconds,
        "steady": found.spread == 0.0,
        "spread": found.spread,
        "drafters": [_pair_as_json(one) for one in found.pairs],
    }


def _pair_as_json(one: Pair) -> dict[str, Any]:
    drafter, least = one.drafter, one.break_even
    return {
        "name": drafter.name,
        "kind": drafter.kind,
        "compatible": drafter.is_compatible,
        "why": drafter.why,
        "path": str(drafter.path) if drafter.path else None,
        "installed": one.is_installed,
        "memory_bytes": one.memory_bytes,
        "fit": one.fit,
        "shared_vocabulary": drafter.shared,
        "draw_cost": one.draw_cost,
        "draw_cost_source": one.cost_source,
        "acceptance": one.acceptance,
        "acceptance_source": one.acceptance_source,
        "predicted_speedup": one.speedup,
        "break_even": None if least == math.inf else least,
        "can_pay": None if least is None else least != math.inf,
    }
