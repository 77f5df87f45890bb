"""Ranks drafters for a target on this machine.

A speedup is predicted only from an acceptance that was measured with this target. Without one, the
break-even acceptance is given instead.
"""

import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

from app.drafting.choose.candidates import candidates, listed
from app.drafting.choose.drafter_info import DrafterInfo, Kind, Ranking, Target
from app.drafting.choose.pair_knowledge import Knowledge, with_memory
from app.engine.session import Session
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import CONTEXT, Calibrations
from app.learned.speeds import disk_speed
from app.loading.checked_loader import CheckedLoader
from app.loading.placement import MemoryPlan, plan
from app.loading.select import choose_model, expected_backend, facts_before
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions, check_ranges
from app.loading.streaming import plan_alone
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import OutOfMemoryError, Rollback
from backends.engines.backend_selection import check_backend, forms
from backends.engines.engine_facts import free_memory
from decoding.estimation.cost import CostModel
from models.metadata.memory_bill import Fit, facts_of
from models.reference import Reference


def rank(options: SessionOptions, paths: Paths, notify: Callable[[str], None]) -> Ranking:
    """Rank drafters for a model; if installed it is loaded, and calibrated unless it was before.

    options: of the session to speed up; costs depend on its threads and GPU layers.

    Raises:
        SpecchatError: the target is unknown, or cannot be run here.
    """
    check_ranges(options)
    check_backend(options.backend)
    reference = choose_model(options.model, paths, forms(options.backend))
    is_here = isinstance(reference, Reference)
    backend = expected_backend(reference, options.backend)
    facts = facts_of(reference.path, backend) if is_here else facts_before(reference)
    facts = facts.with_cache(options.cache_type) if facts else None
    free = free_memory(backend, options.gpu_layers)
    planned, lock_bytes = None, None
    if is_here and facts:
        planned = plan_alone(reference, facts, options, paths, DEFAULT_CONTEXT, free)
        lock_bytes = planned.lock_bytes
        if lock_bytes is not None:  # drafters may take the place of held weights
            planned = replace(planned, room=lock_bytes)
            disk_speed(reference.path, paths)
    elif facts:
        planned = plan(reference.name, facts, options.ctx, DEFAULT_CONTEXT, free)
    with ExitStack() as stack:
        target = Target(reference, facts, backend=options.backend)
        known, spread = None, 0.0
        if is_here:
            notify(f"loading {reference.name}")
            model = CheckedLoader(paths, notify).load(
                reference.path,
                options.threads,
                options.gpu_layers,
                options.backend,
                cache_type=options.cache_type,
                lock_bytes=lock_bytes,
            )
            stack.enter_context(closing(model))
            target = Target(reference, facts, model, options.backend)
            opened = model.open(min(CONTEXT, model.info.context_limit))
            context = TargetContext(model, opened)
            known, spread = _known(target, context, options, paths, notify)
        notify("comparing vocabularies")
        return _ranking(target, CheckedLoader(paths, notify), planned, known, spread=spread)


def rank_for(session: Session) -> Ranking:
    """Rank drafters for a session's model, on the thread that runs the session.

    Its context is then ready to draft, if there is enough memory: how long the drafts are that it
    can verify decides which passes are measured.

    Raises:
        SpecchatError: the model cannot be calibrated.
    """
    with suppress(OutOfMemoryError):
        session.context.be_ready_to_draft()
    target, planned = _of_session(session)
    options = session.options
    known, spread = _known(target, session.context, options, session.paths, _silent)
    models = CheckedLoader(session.paths, _silent)
    return _ranking(target, models, planned, known, spread=spread)


def list_for(session: Session) -> Ranking:
    """Drafters for a session's model with what was measured before, in no order of gain.

    Nothing is run and no drafter's file is read: it takes a moment, on any thread.

    Raises:
        SpecchatError: the model's file cannot be read any more.
    """
    target, planned = _of_session(session)
    info, options, paths = session.model.info, session.options, session.paths
    calibrations = Calibrations(paths, _silent)
    measured = calibrations.known_target(info)
    memory = AcceptanceMemory(info.path, paths)
    known = None
    if measured is not None and info.rollback is not Rollback.NONE:
        costs = CostModel.of(measured)
        if session.drafting.controller is not None:  # it has asked: the first answer takes passes
            target = replace(target, tree_refusal=session.context.tree_refusal)
        threads, gpu_layers = options.threads, options.gpu_layers
        known = Knowledge(target, session.model, costs, calibrations, memory, threads, gpu_layers)
    pairs = _pairs(target, known, planned, listed(target, paths, memory))
    spread = measured.spread if measured else 0.0
    return Ranking(target.reference.name, True, _plain_seconds(known), tuple(pairs), spread)


def _of_session(session: Session) -> tuple[Target, MemoryPlan]:
    reference, model = session.reference, session.model
    facts = facts_of(reference.path, model.info.backend).with_cache(model.info.cache_type)
    n_ctx = session.context.n_ctx
    target = Target(reference, facts, model, session.options.backend)
    return target, MemoryPlan(n_ctx, n_ctx, session.room)


def _silent(_: str) -> None: ...


def _ranking(
    target: Target,
    models: CheckedLoader,
    planned: MemoryPlan | None,
    known: Knowledge | None,
    *,
    spread: float,
) -> Ranking:
    name, is_here = target.reference.name, target.model is not None
    target = known.target if known else target
    drafters = candidates(target, models, known.memory if known else None)
    pairs = sorted(_pairs(target, known, planned, drafters), key=_order)
    return Ranking(name, is_here, _plain_seconds(known), tuple(pairs), spread)


def _pairs(
    target: Target,
    known: Knowledge | None,
    planned: MemoryPlan | None,
    drafters: Iterable[DrafterInfo],
) -> list[DrafterInfo]:
    drafters = list(drafters)
    if target.model and target.model.info.rollback is Rollback.NONE:
        why = f"{target.reference.name} {target.model.info.rollback_refusal}"
        drafters = [drafter.refused(why) for drafter in drafters]
    paired = known.of_drafter if known else with_memory
    return [paired(candidate, planned) for candidate in drafters]


def _plain_seconds(known: Knowledge | None) -> float | None:
    return known.costs.seconds(1) if known else None


def _known(
    target: Target,
    context: TargetContext,
    options: SessionOptions,
    paths: Paths,
    notify: Callable[[str], None],
) -> tuple[Knowledge | None, float]:
    """Knowledge about a target's drafters, None if none can draft, and the spread of its costs."""
    model = target.model
    if model is None or model.info.rollback is Rollback.NONE:
        return None, 0.0
    calibrations = Calibrations(paths, notify)
    measured = calibrations.measured_target(model, context)
    target = replace(target, tree_refusal=context.tree_refusal)
    costs = CostModel.of(measured)
    memory = AcceptanceMemory(model.info.path, paths)
    threads, gpu_layers = options.threads, options.gpu_layers
    known = Knowledge(target, model, costs, calibrations, memory, threads, gpu_layers)
    return known, measured.spread


def _order(pair: DrafterInfo) -> tuple[int, float, bool]:
    """Sort key: expected gains, possible gains, losses, too large drafters, incompatible ones."""
    least = math.inf if pair.break_even is None else pair.break_even
    gain = -pair.speedup if pair.speedup is not None else least
    return _group(pair), gain, pair.kind is Kind.ACROSS_VOCABULARIES


def _group(pair: DrafterInfo) -> int:
    if pair.is_compatible is False:
        return 4
    if pair.fit is Fit.TOO_BIG:
        return 3
    if pair.speedup is not None:
        return 0 if pair.speedup >= 1.0 else 2
    return 2 if pair.break_even == math.inf or pair.doubt else 1
