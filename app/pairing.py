"""Which drafter suits a target on this machine, by what was measured of both.

Nothing is guessed: a speedup needs an acceptance that was measured, with this target. Where there
is none, the acceptance from which drafting pays takes its place.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum

from app.acceptance_memory import AcceptanceMemory
from app.calibrations import Calibrations
from app.candidates import Candidate, Kind, Target, candidates, undraftable
from app.draft_spec import LOOKUP
from app.memory_plan import MemoryPlan, drafter_context, plan
from app.model_choice import choose_model, expected_backend
from app.obtaining import facts_before
from app.paths import Paths
from app.session import Session
from app.session_options import DEFAULT_CONTEXT, SessionOptions, check_ranges
from backends.base import DraftUnavailableError, Rollback
from backends.choice import check_backend, forms, free_memory, load
from decoding.calibration import MOST_TOKENS
from decoding.cost import CostModel
from decoding.length import break_even, predicted_speedup
from decoding.member import DRAWN
from models.fingerprint import fingerprint
from models.memory_bill import Fit, bill, fit
from models.model_facts import ModelFacts, facts_of
from models.reference import Reference

_CALIBRATION_CONTEXT = 8 * MOST_TOKENS


class CostSource(StrEnum):
    """How the cost of a drafter's token is known."""

    FREE = "free"
    MEASURED = "measured"
    SIZE = "expected from size"


@dataclass(frozen=True, slots=True)
class Pair:
    """A drafter beside a target. None where a figure was not measured, or is not known.

    memory_bytes: with its context. draw_cost: of one of its tokens, in plain steps of the target.
    acceptance: remembered of this pair. break_even: the acceptance from which it pays, infinite
    where none does.
    """

    drafter: Candidate
    is_installed: bool
    memory_bytes: int | None = None
    fit: Fit | None = None
    draw_cost: float | None = None
    cost_source: CostSource | None = None
    acceptance: float | None = None
    speedup: float | None = None
    break_even: float | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Drafters for a target, the best first. plain_seconds: of a plain step, None if unmeasured."""

    target: str
    is_installed: bool
    plain_seconds: float | None
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class _Measured:
    """What this machine knows of a target that is on it."""

    target: Target
    calibrations: Calibrations
    costs: CostModel
    memory: AcceptanceMemory


def rank(options: SessionOptions, paths: Paths, notify: Callable[[str], None]) -> Ranking:
    """Rank drafters for a model; one on this machine is loaded, and measured if it never was.

    options: of the session that is to be sped up; costs depend on threads and layers on a GPU.

    Raises:
        SpecchatError: nobody knows the target, or it cannot be run here.
    """
    check_ranges(options)
    check_backend(options.backend)
    preferred = forms(options.backend)
    reference = choose_model(options.model, paths, preferred)
    is_here = isinstance(reference, Reference)
    facts = facts_of(reference.path) if is_here else facts_before(reference)
    free = free_memory(expected_backend(reference, options.backend), options.gpu_layers)
    planned = plan(reference.name, facts, options.ctx, DEFAULT_CONTEXT, free) if facts else None
    with ExitStack() as stack:
        target, measured = Target(reference, facts, forms=preferred), None
        if is_here:
            notify(f"loading {reference.name}")
            model = load(reference.path, options.threads, options.gpu_layers, options.backend)
            stack.enter_context(closing(model))
            target = Target(reference, facts, model, preferred)
            measured = _measured(target, paths, notify)
        notify("comparing vocabularies")
        return _ranking(target, paths, planned, measured)


def rank_for(session: Session) -> Ranking:
    """Rank drafters for a model that is loaded; call it on the thread that runs the session.

    Raises:
        SpecchatError: the model cannot be measured.
    """
    reference = session.reference
    target = Target(reference, facts_of(reference.path), session.model, session.forms)
    n_ctx = session.context.n_ctx
    planned = MemoryPlan(n_ctx, n_ctx, session.place(_silent).room)
    return _ranking(target, session.paths, planned, _measured(target, session.paths, _silent))


def _silent(_: str) -> None: ...


def _ranking(
    target: Target, paths: Paths, planned: MemoryPlan | None, measured: _Measured | None
) -> Ranking:
    name, is_here = target.reference.name, target.model is not None
    found = list(candidates(target, paths, measured.memory if measured else None))
    if target.model and target.model.info.rollback is not Rollback.ANY:
        found = undraftable(f"{name} {target.model.info.rollback_refusal}", found)
    pairs = sorted((_pair(one, planned, measured) for one in found), key=_order)
    plain = measured.costs.seconds(1) if measured else None
    return Ranking(name, is_here, plain, tuple(pairs))


def _measured(target: Target, paths: Paths, notify: Callable[[str], None]) -> _Measured | None:
    model = target.model
    if model is None or model.info.rollback is not Rollback.ANY:
        return None
    calibrations = Calibrations(paths, notify)
    with closing(model.open(min(_CALIBRATION_CONTEXT, model.info.context_limit))) as context:
        costs = calibrations.target(model, context)
    return _Measured(target, calibrations, costs, AcceptanceMemory(model.info.path, paths))


def _pair(one: Candidate, planned: MemoryPlan | None, measured: _Measured | None) -> Pair:
    is_installed = one.kind is Kind.LOOKUP or one.path is not None
    if one.is_compatible is False:
        return Pair(one, is_installed)
    size, how = _memory(one, planned)
    if measured is None:
        return Pair(one, is_installed, size, how)
    cost, source = _draw_cost(one, measured)
    share = _remembered(one, measured.memory)
    least = None if cost is None else break_even(measured.costs, cost)
    speedup = None
    if cost is not None and share is not None and one.kind is not Kind.LOOKUP:
        speedup = predicted_speedup(lambda _: share, measured.costs, cost)
    return Pair(one, is_installed, size, how, cost, source, share, speedup, least)


def _memory(one: Candidate, planned: MemoryPlan | None) -> tuple[int | None, Fit | None]:
    """What a drafter takes with the context that it would get beside the target."""
    if one.kind is Kind.LOOKUP:
        return 0, Fit.FITS
    if one.facts is None:
        return None, None
    n_ctx = planned.n_ctx if planned else DEFAULT_CONTEXT
    wanted = bill(one.facts, _context(one.facts, n_ctx)).total
    if planned is None or planned.room is None:
        return wanted, None
    try:
        given, given_up = drafter_context(one.name, one.facts, n_ctx, planned.room)
    except DraftUnavailableError:
        return wanted, Fit.TOO_BIG
    size = bill(one.facts, given).total
    return size, Fit.TIGHT if given_up else fit(size, planned.room)


def _context(facts: ModelFacts, n_ctx: int) -> int:
    return min(n_ctx, facts.context_limit or n_ctx)


def _draw_cost(one: Candidate, measured: _Measured) -> tuple[float | None, CostSource | None]:
    """Of one token in plain steps, and how that is known."""
    model = measured.target.model
    assert model is not None
    if one.kind is Kind.LOOKUP:
        return 0.0, CostSource.FREE
    known = None
    if one.path:
        known = measured.calibrations.known_drafter(one.path, model.info, one.variant)
    if known is not None:
        return known.draw_seconds / measured.costs.seconds(1), CostSource.MEASURED
    if one.read_bytes is None:
        return None, None
    return one.read_bytes / max(model.info.bytes_read_per_token, 1), CostSource.SIZE


def _remembered(one: Candidate, memory: AcceptanceMemory) -> float | None:
    """The share of a drafter's tokens that this target accepted, at any temperature."""
    if one.kind is Kind.LOOKUP:
        counts = list(memory.recall(LOOKUP).counts().values())
    elif one.path is not None:
        kinds = memory.recall(fingerprint(one.path, one.variant)).counts().items()
        counts = [count for kind, count in kinds if kind.endswith(f":{DRAWN}")]
    else:
        return None
    judged = sum(count[1] for count in counts)
    return sum(count[0] for count in counts) / judged if judged else None


def _order(pair: Pair) -> tuple[int, float, bool]:
    """Expected gains first, then what may pay, what does not, what does not fit or cannot draft."""
    least = math.inf if pair.break_even is None else pair.break_even
    gain = -pair.speedup if pair.speedup is not None else least
    return _group(pair), gain, pair.drafter.kind is Kind.ACROSS_VOCABULARIES


def _group(pair: Pair) -> int:
    if pair.drafter.is_compatible is False:
        return 4
    if pair.fit is Fit.TOO_BIG:
        return 3
    if pair.speedup is not None:
        return 0 if pair.speedup >= 1.0 else 2
    return 2 if pair.break_even == math.inf else 1
