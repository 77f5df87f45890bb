"""Which drafter suits a target on this machine, by what was measured of both.

Nothing is guessed: a speedup needs an acceptance that was measured, with this target. Where there
is none, the acceptance from which drafting pays takes its place.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from app.acceptance_memory import AcceptanceMemory
from app.calibrations import CONTEXT, Calibrations
from app.candidate import Candidate, Kind, Target
from app.candidates import candidates, undraftable
from app.draft_link import SELF
from app.drafter_engine import drafter_runner
from app.memory_plan import MemoryPlan, drafter_context, plan
from app.model_choice import choose_model, expected_backend
from app.obtaining import facts_before
from app.paths import Paths
from app.ranking import CostSource, Pair, Ranking
from app.session import Session
from app.session_options import DEFAULT_CONTEXT, SessionOptions, check_ranges
from app.target_context import TargetContext
from backends.base import DraftUnavailableError, ModelError, Rollback
from backends.choice import check_backend, forms, free_memory, load
from backends.runner import Runner
from decoding.cost import CostModel, DraftCost, TreeCosts
from decoding.kinds import DRAWN, is_lossless
from decoding.length import break_even, predicted_speedup
from decoding.ngram_table import N_BYTES
from models.fingerprint import fingerprint
from models.memory_bill import Fit, bill, fit
from models.model_facts import ModelFacts, facts_of
from models.reference import Reference


@dataclass(frozen=True, slots=True)
class _Measured:
    """What this machine knows of a target that is on it."""

    target: Target
    options: SessionOptions
    calibrations: Calibrations
    costs: CostModel
    memory: AcceptanceMemory
    spread: float


def rank(options: SessionOptions, paths: Paths, notify: Callable[[str], None]) -> Ranking:
    """Rank drafters for a model; one on this machine is loaded, and measured if it never was.

    options: of the session that is to be sped up; costs depend on threads and layers on a GPU.

    Raises:
        SpecchatError: nobody knows the target, or it cannot be run here.
    """
    check_ranges(options)
    check_backend(options.backend)
    reference = choose_model(options.model, paths, forms(options.backend))
    is_here = isinstance(reference, Reference)
    backend = expected_backend(reference, options.backend)
    facts = facts_of(reference.path, backend) if is_here else facts_before(reference)
    free = free_memory(backend, options.gpu_layers)
    planned = plan(reference.name, facts, options.ctx, DEFAULT_CONTEXT, free) if facts else None
    with ExitStack() as stack:
        target, measured = Target(reference, facts, backend=options.backend), None
        if is_here:
            notify(f"loading {reference.name}")
            model = load(reference.path, options.threads, options.gpu_layers, options.backend)
            stack.enter_context(closing(model))
            target = Target(reference, facts, model, options.backend)
            opened = model.open(min(CONTEXT, model.info.context_limit))
            context = TargetContext(model, opened)
            measured = _measured(target, context, options, paths, notify)
        notify("comparing vocabularies")
        return _ranking(target, paths, planned, measured)


def rank_for(session: Session) -> Ranking:
    """Rank drafters for a model that is loaded; call it on the thread that runs the session.

    Raises:
        SpecchatError: the model cannot be measured.
    """
    reference, model, options = session.reference, session.model, session.options
    facts = facts_of(reference.path, model.info.backend)
    target = Target(reference, facts, model, options.backend)
    n_ctx = session.context.n_ctx
    planned = MemoryPlan(n_ctx, n_ctx, session.place(_silent).room)
    measured = _measured(target, session.context, options, session.paths, _silent)
    return _ranking(target, session.paths, planned, measured)


def _silent(_: str) -> None: ...


def _ranking(
    target: Target, paths: Paths, planned: MemoryPlan | None, measured: _Measured | None
) -> Ranking:
    name, is_here = target.reference.name, target.model is not None
    target = measured.target if measured else target
    found = list(candidates(target, paths, measured.memory if measured else None))
    if target.model and target.model.info.rollback is not Rollback.ANY:
        found = undraftable(f"{name} {target.model.info.rollback_refusal}", found)
    pairs = sorted((_pair(one, planned, measured) for one in found), key=_order)
    plain = measured.costs.seconds(1) if measured else None
    return Ranking(name, is_here, plain, tuple(pairs), measured.spread if measured else 0.0)


def _measured(
    target: Target,
    context: TargetContext,
    options: SessionOptions,
    paths: Paths,
    notify: Callable[[str], None],
) -> _Measured | None:
    model = target.model
    if model is None or model.info.rollback is not Rollback.ANY:
        return None
    calibrations = Calibrations(paths, notify)
    found = calibrations.measured_target(model, context)
    target = replace(target, tree_refusal=context.tree_refusal)
    costs = CostModel.of(found)
    memory = AcceptanceMemory(model.info.path, paths)
    return _Measured(target, options, calibrations, costs, memory, found.spread)


def _pair(one: Candidate, planned: MemoryPlan | None, measured: _Measured | None) -> Pair:
    is_installed = one.needs_no_model or one.path is not None
    if one.is_compatible is False:
        return Pair(one, is_installed)
    size, how = _memory(one, planned)
    if measured is None:
        return Pair(one, is_installed, size, how)
    cost, source = _draw_cost(one, measured)
    share, is_trial = _remembered(one, measured.memory)
    costs = TreeCosts(measured.costs, one.tree) if one.tree else measured.costs
    least = None if cost is None else break_even(costs, cost)
    expected = one.tuned.acceptance if share is None and one.tuned else share
    speedup = None
    if cost is not None and expected is not None and not one.is_free:
        speedup = predicted_speedup(lambda _: expected, costs, cost)
    return Pair(one, is_installed, size, how, cost, source, share, is_trial, speedup, least)


def _memory(one: Candidate, planned: MemoryPlan | None) -> tuple[int | None, Fit | None]:
    """What a drafter takes with the context that it would get beside the target."""
    if one.kind is Kind.NGRAM:
        return N_BYTES, Fit.FITS
    if one.needs_no_model:
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
    if one.needs_no_model:
        return 0.0, CostSource.FREE
    if one.kind is Kind.COMPOSED:
        return None, None
    known = _known_cost(one, measured)
    if known is not None:
        source = CostSource.MEASURED if known.is_steady else CostSource.BUSY
        return known.draw_seconds / measured.costs.seconds(1), source
    if one.tuned is not None:
        return one.tuned.draw_cost, CostSource.MEASURED
    if one.read_bytes is None:
        return None, None
    return one.read_bytes / max(model.info.bytes_read_per_token, 1), CostSource.SIZE


def _known_cost(one: Candidate, measured: _Measured) -> DraftCost | None:
    """Of a drafter with its own engine, as a session would run it beside this target."""
    model, options = measured.target.model, measured.options
    if one.path is None or model is None:
        return None
    if one.variant:  # it is made of the target's loaded weights
        runner = Runner.of(model.info)
    else:
        try:
            runner = drafter_runner(one.path, options.backend, options.threads, options.gpu_layers)
        except ModelError:
            return None
    return measured.calibrations.known_drafter(one.path, runner, one.variant)


def _remembered(one: Candidate, memory: AcceptanceMemory) -> tuple[float | None, bool]:
    """The share of a drafter's tokens that this target accepted, at any temperature.

    True where a trial alone expects it.
    """
    key = _key(one)
    if key is None:
        return None, False
    known, kinds = memory.recall(key), "" if one.is_free else f":{DRAWN}"
    counts = [
        count
        for kind, count in known.counts().items()
        if kind.endswith(kinds) and is_lossless(kind)
    ]
    judged = sum(count[1] for count in counts)
    share = sum(count[0] for count in counts) / judged if judged else None
    return share, known.is_trial


def _key(one: Candidate) -> str | None:
    """By which what was learned of a drafter is remembered, None where it is not made yet."""
    if one.needs_no_model:
        return one.name
    if one.path is None:
        return None
    own = fingerprint(one.path, one.variant)
    return one.name.replace(SELF, own) if one.kind is Kind.COMPOSED else own


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
