"""`specchat models pair`: which drafter suits a model on this machine."""

import math
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import typer

from app.candidates import Kind
from app.cli import options, terminal
from app.cli.opening import phases
from app.cli.printable import printable, say_json
from app.pairing import Pair, Ranking, rank
from app.paths import Paths
from models.memory_bill import Fit
from models.size_text import size_text

_COLUMNS = 100


def pair(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The model to draft for.")],
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
        say_json(_as_json(found))
        return
    for line in _lines(found):
        terminal.say(line + "\n")


def _lines(found: Ranking) -> Iterator[str]:
    title = f"drafters for {found.target}"
    if found.plain_seconds is not None:
        title += f", {1 / found.plain_seconds:.1f} tokens per second undrafted"
    elif not found.is_installed:
        title += f": costs are measured once it is here (specchat models pull {found.target})"
    yield from _wrapped(title, "")
    for one in found.pairs:
        yield from _wrapped(f"{one.drafter.name}: {'; '.join(_facts(one))}", "  ")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        printable(text), _COLUMNS, initial_indent=indent, subsequent_indent=f"{indent}    "
    )


def _facts(one: Pair) -> Iterator[str]:
    drafter = one.drafter
    if drafter.kind and drafter.kind != drafter.name:
        yield drafter.kind
    if drafter.is_compatible is False:
        yield f"cannot draft: {drafter.why}"
        return
    gain = _gain(one)
    if gain:
        yield gain
    if one.memory_bytes:
        yield size_text(one.memory_bytes) + (f", {_FITS[one.fit]}" if one.fit else "")
    if not one.is_installed and drafter.kind is not Kind.SELF:
        yield "not on this machine"
    yield drafter.why


_FITS = {
    Fit.FITS: "fits beside the model",
    Fit.TIGHT: "is tight beside the model",
    Fit.TOO_BIG: "does not fit beside the model",
}


def _gain(one: Pair) -> str:
    """What was measured of the gain, or from where there is one."""
    least = one.break_even
    said: list[str] = []
    if one.speedup is not None:
        said.append(f"{one.speedup:.2f}× plain expected")
    if one.acceptance is not None:
        said.append(f"{_percent(one.acceptance)} accepted so far")
    if least == math.inf:
        said.append("does not pay here, even with all accepted")
    elif least is not None:
        said.append(f"pays above {_percent(least)} accepted")
    if one.draw_cost and one.cost_source:
        said.append(f"a token costs {one.draw_cost:.2f} of a step ({one.cost_source})")
    return ", ".join(said)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _as_json(found: Ranking) -> dict[str, Any]:
    return {
        "schema": 1,
        "target": found.target,
        "installed": found.is_installed,
        "plain_seconds": found.plain_seconds,
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
        "predicted_speedup": one.speedup,
        "break_even": None if least == math.inf else least,
        "can_pay": None if least is None else least != math.inf,
    }
