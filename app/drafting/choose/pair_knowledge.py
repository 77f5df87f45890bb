"""What drafting with a drafter is expected to gain, by everything measured on this machine.

Acceptance comes from replies, tuning or a trial with this target, costs from calibration.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from app.drafting.choose.drafter_info import DrafterInfo, Kind, Target
from app.drafting.gain import Cost, CostCurve, CostSource, expected_gain, judged_of
from app.drafting.model_source import drafter_runner
from app.learned.acceptance_memory import AcceptanceMemory, TrialResult, TrialResults
from app.learned.calibrations import Calibrations
from app.learned.speeds import known_disk_speed, processor_bandwidth
from app.learned.store import run_key
from app.loading.pass_time import ReadRates, pass_seconds
from app.loading.placement import MemoryPlan, drafter_context
from app.loading.session_options import DEFAULT_CONTEXT
from app.paths import Paths
from backends.base import DraftUnavailableError, Model, ModelError
from backends.engines.engine_facts import Runner
from backends.streaming.mapped_file import DiskSpeed
from backends.streaming.weight_plan import weight_layout
from decoding.draft import MOST_DRAFTED
from decoding.drafters.ngram import N_BYTES
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.cost import CostModel, DraftCost, DraftCosts, TreeCosts
from decoding.planning.draft_length import break_even
from models.metadata.identity import fingerprint
from models.metadata.memory_bill import Fit, bill, fit


def costs_beside(costs: DraftCosts, extra: float) -> DraftCosts:
    """Costs of verifying where each step takes so much longer, in plain steps."""
    return CostCurve(lambda drafted: costs.of_draft(drafted) + extra, costs.largest)


def read_rates(disk: DiskSpeed | None, threads: int, paths: Paths) -> ReadRates | None:
    """Rates at which the processor's part of a pass is read; None if one is unknown."""
    memory = processor_bandwidth(threads, paths)
    if disk is None or memory is None:
        return None
    return ReadRates(disk.bytes_per_second, memory.bytes_per_second)


def displaced_seconds(
    model: Path, threads: int, budget: int, drafter_bytes: int, paths: Paths
) -> float | None:
    """Seconds that a pass takes longer if a drafter takes so many bytes of the held weights.

    budget: bytes held without it. None where the disk or the memory was not measured.

    Raises:
        ModelError: the model's file cannot be read.
    """
    rates = read_rates(known_disk_speed(model, paths), threads, paths)
    if rates is None:
        return None
    seconds = pass_seconds(weight_layout(model), budget, rates)
    return seconds(drafter_bytes, 1) - seconds(0, 1)


@dataclass(frozen=True)
class Knowledge:
    """Measurements about drafters for a loaded target.

    costs: of its passes. threads, gpu_layers: those that drafters run with.
    """

    target: Target
    model: Model
    costs: CostModel
    calibrations: Calibrations
    memory: AcceptanceMemory
    threads: int | None = None
    gpu_layers: int | None = None

    @cached_property
    def trials(self) -> TrialResults:
        return TrialResults(self.model.info, self.calibrations.paths)

    def of_drafter(self, drafter: DrafterInfo, planned: MemoryPlan | None) -> DrafterInfo:
        """A drafter with every figure known for it with this target."""
        drafter = with_memory(drafter, planned)
        if drafter.is_compatible is False:
            return drafter
        trial = self.trial(drafter)
        if trial is not None and trial.failed:
            return drafter.refused(trial.failed)
        known = self._remembered(drafter)
        accepted, judged = judged_of(known, is_free=drafter.is_free)
        share = accepted / judged if judged else None
        drafter = replace(drafter, acceptance=share, is_trial=known.is_trial, judged=judged)
        cost = self._cost(drafter, trial)
        if cost is None:
            return drafter
        drafter = replace(
            drafter, draw_cost=cost.draw, start_cost=cost.start, cost_source=cost.source
        )
        costs = self._costs_beside(drafter, planned)
        if costs is None:
            return drafter
        expected = drafter.tuned.acceptance if share is None and drafter.tuned else share
        if expected is not None and not drafter.is_free:
            drafter = replace(drafter, speedup=expected_gain(costs, cost, expected))
        least = break_even(costs, cost.draw, cost.start, cost.longest)
        return replace(drafter, break_even=least)

    def _costs_beside(self, drafter: DrafterInfo, planned: MemoryPlan | None) -> DraftCosts | None:
        """Costs of verifying its drafts; None if those of the weights it displaces are unknown."""
        costs = TreeCosts(self.costs, drafter.tree) if drafter.tree else self.costs
        budget = planned.lock_bytes if planned else None
        if budget is None or not drafter.memory_bytes:
            return costs
        info, paths = self.model.info, self.calibrations.paths
        extra = displaced_seconds(info.path, info.threads, budget, drafter.memory_bytes, paths)
        return None if extra is None else costs_beside(costs, extra / self.costs.seconds(1))

    def trial(self, drafter: DrafterInfo) -> TrialResult | None:
        """Result of the last automatic attempt to use a drafter, with the present settings."""
        return self.trials.of(self.key(drafter))

    def key(self, drafter: DrafterInfo) -> str | None:
        """Key of a drafter's trial result; None if it is not available on this machine."""
        info, path, variant = self.model.info, drafter.path, drafter.variant
        if drafter.recipe is not None:
            path, variant, runner = info.path, drafter.recipe.slug, Runner.of(info)
        else:
            runner = self._runner(drafter)
        try:
            return run_key(path, variant, runner) if path and runner else None
        except OSError:
            return None

    def _cost(self, drafter: DrafterInfo, trial: TrialResult | None) -> Cost | None:
        """Cost of drafting by calibration, else by tuning, the last attempt, or its size."""
        if drafter.needs_no_model:
            return Cost(0.0, source=CostSource.FREE)
        if drafter.kind is Kind.COMPOSED:
            return None
        longest, cost = drafter.longest or MOST_DRAFTED, None
        calibrated = self._calibrated_cost(drafter)
        if calibrated is not None:
            cost = Cost.of(calibrated, self.costs.seconds(1))
        elif drafter.tuned is not None:
            cost = Cost(drafter.tuned.draw_cost)
        elif trial is not None and trial.draw_cost is not None:
            cost = Cost(trial.draw_cost)
        elif drafter.read_bytes is not None:
            read = self._cost_by_size(drafter.read_bytes)
            is_block = drafter.longest > 0  # which reads the weights once
            draw, start = (0.0, read) if is_block else (read, 0.0)
            cost = Cost(draw, start, source=CostSource.SIZE)
        return replace(cost, longest=longest) if cost else None

    def _cost_by_size(self, read_bytes: int) -> float:
        """Cost of a pass that reads so many bytes from memory, in plain steps."""
        info = self.model.info
        if info.streamed_bytes_per_token:  # then a step waits for the disk
            memory = processor_bandwidth(info.threads, self.calibrations.paths)
            if memory is not None:
                return read_bytes / memory.bytes_per_second / self.costs.seconds(1)
        return read_bytes / max(info.bytes_read_per_token, 1)

    def _calibrated_cost(self, drafter: DrafterInfo) -> DraftCost | None:
        """Saved calibration of a drafter model, run as a session with this target would."""
        runner, known = self._runner(drafter), self.calibrations.known_drafter
        if drafter.path is None or runner is None:
            return None
        try:
            return known(drafter.path, runner, drafter.variant, drafter.longest)
        except OSError:
            return None

    def _runner(self, drafter: DrafterInfo) -> Runner | None:
        if drafter.path is None:
            return None
        if drafter.kind is Kind.TRAINED:  # in memory, with a cache of the usual type
            return replace(Runner.of(self.model.info), streamed_tenths=0, cache_type=None)
        if drafter.variant:  # derived from the target's loaded weights
            return Runner.of(self.model.info)
        try:
            return drafter_runner(drafter.path, self.target.backend, self.threads, self.gpu_layers)
        except ModelError:
            return None

    def _remembered(self, drafter: DrafterInfo) -> Acceptance:
        """Acceptance with this target; empty if the drafter's file does not exist yet."""
        if drafter.needs_no_model:
            return self.memory.recall(drafter.name)
        if drafter.path is None:
            return Acceptance()
        try:
            key = fingerprint(drafter.path, drafter.variant)
        except OSError:
            return Acceptance()
        return self.memory.recall(drafter.composition.of(key) if drafter.composition else key)


def with_memory(drafter: DrafterInfo, planned: MemoryPlan | None) -> DrafterInfo:
    """A drafter with its memory in the context it would get, and whether it fits."""
    facts, n_ctx = drafter.facts, planned.n_ctx if planned else DEFAULT_CONTEXT
    if drafter.needs_no_model and drafter.is_compatible is not False:
        size = N_BYTES if drafter.kind is Kind.NGRAM else 0
        return replace(drafter, memory_bytes=size, fit=Fit.FITS)
    if facts is None or drafter.is_compatible is False:
        return drafter
    size = bill(facts, min(n_ctx, facts.context_limit or n_ctx)).total
    drafter = replace(drafter, memory_bytes=size)
    if planned is None or planned.room is None:
        return drafter
    if drafter.kind is not Kind.TRAINED:  # whose context is as large as the target's
        try:
            n_ctx, reductions = drafter_context(drafter.name, facts, n_ctx, planned.room)
        except DraftUnavailableError:
            return replace(drafter, fit=Fit.TOO_BIG)
        size = bill(facts, n_ctx).total
        if reductions:
            return replace(drafter, memory_bytes=size, fit=Fit.TIGHT)
    return replace(drafter, memory_bytes=size, fit=fit(size, planned.room))
