"""Ranks drafters for a target on this machine.

A speedup is predicted only from an acceptance that was measured with this target. Without one, the
break-even acceptance is given instead.
"""

import math
from collections.abc import Callable
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
from backends.base import ModelError, OutOfMemoryError, Rollback
from backends.engines.backend_selection import check_backend, forms
from backends.engines.engine_facts import free_memory
from decoding.estimation.cost import CostModel, Measured
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
        target, measured = Target(reference, facts, backend=options.backend), None
        models = CheckedLoader(paths, notify)
        if is_here:
            notify(f"loading {reference.name}")
            model = models.load(
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
            target, measured = _measured(target, TargetContext(model, opened), models)
        notify("comparing vocabularies")
        return _ranking(target, measured, planned, options, models)


def rank_for(session: Session) -> Ranking:
    """Rank drafters for a session's model, on the thread that runs the session.

    Its context is then ready to draft, if there is enough memory: how long the drafts are that it
    can verify decides which passes are measured.

    Raises:
        SpecchatError: the model cannot be calibrated.
    """
    with suppress(OutOfMemoryError):
        session.context.be_ready_to_draft()
    models = CheckedLoader(session.paths, lambda _: None)
    target, planned = _of_session(session)
    target, measured = _measured(target, session.context, models)
    return _ranking(target, measured, planned, session.options, models)


def list_for(session: Session) -> Ranking:
    """Drafters for a session's model with what was measured before, in no order of gain.

    Nothing is run and no drafter's file is read: it takes a moment, on any thread.

    Raises:
        SpecchatError: the model's file cannot be read any more.
    """
    models = CheckedLoader(session.paths, lambda _: None)
    target, planned = _of_session(session)
    measured = Calibrations(session.paths, models.notify).known_target(session.model.info)
    if session.drafting.controller is not None:  # it has asked: the first answer takes passes
        target = replace(target, tree_refusal=session.context.facts.tree_refusal)
    return _ranking(target, measured, planned, session.options, models, opens=False)


def _of_session(session: Session) -> tuple[Target, MemoryPlan]:
    reference, model = session.reference, session.model
    if model.info.host:
        why = f"it runs on {model.info.host}, and no drafter was tried with it"
        raise ModelError(f"drafters are not ranked for {model.info.name}", why)
    facts = facts_of(reference.path, model.info.backend).with_cache(model.info.cache_type)
    n_ctx = session.context.facts.n_ctx
    target = Target(reference, facts, model, session.options.backend)
    return target, MemoryPlan(n_ctx, n_ctx, session.room)


def _measured(
    target: Target, context: TargetContext, models: CheckedLoader
) -> tuple[Target, Measured | None]:
    """A target with what its context tells, and its costs; None if nothing can draft for it."""
    model = target.model
    if model is None or model.info.rollback is Rollback.NONE:
        return target, None
    measured = Calibrations(models.paths, models.notify).measured_target(model, context)
    return replace(target, tree_refusal=context.facts.tree_refusal), measured


def _ranking(
    target: Target,
    measured: Measured | None,
    planned: MemoryPlan | None,
    options: SessionOptions,
    models: CheckedLoader,
    *,
    opens: bool = True,
) -> Ranking:
    """Drafters for a target with what is known of them, best first.

    opens: whether their files are opened; if not, they are in no order.
    """
    name, model, paths = target.reference.name, target.model, models.paths
    memory = AcceptanceMemory(model.info.path, paths) if model else None
    refusal = ""
    if model and model.info.rollback is Rollback.NONE:
        refusal = f"{name} {model.info.rollback_refusal}"
    known = None
    if model and memory and measured and not refusal:
        costs, calibrations = CostModel(measured), Calibrations(paths, models.notify)
        threads, gpu_layers = options.threads, options.local_layers
        known = Knowledge(target, model, costs, calibrations, memory, threads, gpu_layers)
    if opens:
        drafters = candidates(target, models, memory if known else None)
    else:
        drafters = listed(target, paths, memory)
    if refusal:
        drafters = [drafter.refused(refusal) for drafter in drafters]
    paired = known.of_drafter if known else with_memory
    pairs = [paired(drafter, planned) for drafter in drafters]
    if opens:
        pairs.sort(key=_order)
    spread = measured.spread if measured else 0.0
    plain_seconds = known.costs.seconds(1) if known else None
    return Ranking(name, model is not None, plain_seconds, tuple(pairs), spread)


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
