"""What a drafter costs a model that streams: the held weights that it takes the place of."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from app.drafting.choose.drafter_info import Candidate, CostSource, Kind, Pair, Target
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
from backends.streaming.weight_plan import weight_layout
from decoding.draft import MOST_DRAFTED
from decoding.drafters.ngram import N_BYTES
from decoding.estimation.acceptance import ANY_POSITION, Acceptance, is_lossless
from decoding.estimation.cost import CostModel, DraftCost, DraftCosts, TreeCosts
from decoding.planning.draft_length import break_even, predicted_speedup
from models.metadata.identity import fingerprint
from models.metadata.memory_bill import Fit, ModelFacts, bill, fit


@dataclass(frozen=True, slots=True)
class CostsBeside:
    """Costs of verifying beside a drafter; extra: what a step takes longer, in plain steps."""

    costs: DraftCosts
    extra: float

    @property
    def largest(self) -> int:
        return self.costs.largest

    def of_draft(self, drafted: int) -> float:
        return self.costs.of_draft(drafted) + self.extra


def displaced_seconds(
    model: Path, threads: int, budget: int, drafter_bytes: int, paths: Paths
) -> float | None:
    """Seconds that a pass takes longer if a drafter takes so many bytes of the held weights.

    budget: bytes held without it. None where the disk or the memory was not measured.

    Raises:
        ModelError: the model's file cannot be read.
    """
    disk, memory = known_disk_speed(model, paths), processor_bandwidth(threads, paths)
    if disk is None or memory is None:
        return None
    rates = ReadRates(disk.bytes_per_second, memory.bytes_per_second)
    seconds = pass_seconds(weight_layout(model), budget, rates)
    return seconds(drafter_bytes, 1) - seconds(0, 1)


# Everything measured on this machine about drafters for a target: the base of all rankings.
#
# Acceptance comes from replies, tuning or a trial with this target, costs from calibration.


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Measurements about drafters for a loaded target.

    threads, gpu_layers: those that drafters run with.
    """

    target: Target
    model: Model
    threads: int | None
    gpu_layers: int | None
    calibrations: Calibrations
    costs: CostModel
    memory: AcceptanceMemory
    trials: TrialResults

    @classmethod
    def of(
        cls,
        target: Target,
        model: Model,
        costs: CostModel,
        calibrations: Calibrations,
        memory: AcceptanceMemory,
        threads: int | None = None,
        gpu_layers: int | None = None,
    ) -> Self:
        """Knowledge of a target whose costs were measured, with its saved trial results."""
        trials = TrialResults(model.info, calibrations.paths)
        return cls(target, model, threads, gpu_layers, calibrations, costs, memory, trials)

    def pair(self, candidate: Candidate, planned: MemoryPlan | None) -> Pair:
        """A candidate with every figure known for it with this target."""
        pair = unmeasured(candidate, planned)
        if candidate.is_compatible is False:
            return pair
        trial = self.trial(candidate)
        if trial is not None and trial.failed:
            return replace(pair, drafter=replace(candidate, is_compatible=False, why=trial.failed))
        cost = self._cost(candidate, trial)
        remembered = self._remembered(candidate)
        share = remembered.share
        costs = self._costs_beside(candidate, pair, planned)
        expected = candidate.tuned.acceptance if share is None and candidate.tuned else share
        speedup = least = None
        if cost is not None and costs is not None:
            longest = candidate.longest or MOST_DRAFTED
            least = break_even(costs, cost.draw, cost.start, longest)
            if expected is not None and not candidate.is_free:
                speedup = predicted_speedup(
                    lambda _: expected, costs, cost.draw, longest, cost.start
                )
        return replace(
            pair,
            draw_cost=cost.draw if cost else None,
            start_cost=cost.start if cost else 0.0,
            cost_source=cost.source if cost else None,
            acceptance=share,
            is_trial=remembered.is_trial,
            judged=remembered.judged,
            speedup=speedup,
            break_even=least,
        )

    def _costs_beside(
        self, candidate: Candidate, pair: Pair, planned: MemoryPlan | None
    ) -> DraftCosts | None:
        """Costs of verifying its drafts; None if those of the weights it displaces are unknown."""
        costs = TreeCosts(self.costs, candidate.tree) if candidate.tree else self.costs
        budget = planned.lock_bytes if planned else None
        if budget is None or not pair.memory_bytes:
            return costs
        info, paths = self.model.info, self.calibrations.paths
        extra = displaced_seconds(info.path, info.threads, budget, pair.memory_bytes, paths)
        return None if extra is None else CostsBeside(costs, extra / self.costs.seconds(1))

    def trial(self, candidate: Candidate) -> TrialResult | None:
        """Result of the last automatic attempt to use a candidate, with the present settings."""
        return self.trials.of(self.key(candidate))

    def key(self, candidate: Candidate) -> str | None:
        """Key of a candidate's trial result; None if it is not available on this machine."""
        info = self.model.info
        try:
            if candidate.recipe is not None:
                return run_key(info.path, candidate.recipe.slug, Runner.of(info))
            runner = self._runner(candidate)
            return (
                run_key(candidate.path, candidate.variant, runner)
                if candidate.path and runner
                else None
            )
        except OSError:
            return None

    def _cost(self, candidate: Candidate, trial: TrialResult | None) -> "_Cost | None":
        """Cost of drafting, None if it is unknown."""
        if candidate.needs_no_model:
            return _Cost(CostSource.FREE, 0.0)
        if candidate.kind is Kind.COMPOSED:
            return None
        measured = self._measured_cost(candidate, trial)
        if measured is not None or candidate.read_bytes is None:
            return measured
        read = self._cost_by_size(candidate.read_bytes)  # a block reads the weights once
        is_block = candidate.longest > 0
        return _Cost(CostSource.SIZE, 0.0 if is_block else read, read if is_block else 0.0)

    def _cost_by_size(self, read_bytes: int) -> float:
        """Cost of a pass that reads so many bytes from memory, in plain steps."""
        info = self.model.info
        if info.streamed_bytes_per_token:  # then a step waits for the disk
            memory = processor_bandwidth(info.threads, self.calibrations.paths)
            if memory is not None:
                return read_bytes / memory.bytes_per_second / self.costs.seconds(1)
        return read_bytes / max(info.bytes_read_per_token, 1)

    def _measured_cost(self, candidate: Candidate, trial: TrialResult | None) -> "_Cost | None":
        """Cost of drafting by calibration, else by tuning, else by the last attempt."""
        calibrated, plain = self._calibrated_cost(candidate), self.costs.seconds(1)
        if calibrated is not None:
            source = CostSource.MEASURED if calibrated.is_steady else CostSource.BUSY
            return _Cost(source, calibrated.draw_seconds / plain, calibrated.begin_seconds / plain)
        if candidate.tuned is not None:
            return _Cost(CostSource.MEASURED, candidate.tuned.draw_cost)
        if trial is None or trial.draw_cost is None:
            return None
        return _Cost(CostSource.MEASURED, trial.draw_cost)

    def _calibrated_cost(self, candidate: Candidate) -> DraftCost | None:
        """Saved calibration of a drafter model, run as a session with this target would."""
        runner = self._runner(candidate)
        if candidate.path is None or runner is None:
            return None
        try:
            return self.calibrations.known_drafter(
                candidate.path, runner, candidate.variant, candidate.longest
            )
        except OSError:
            return None

    def _runner(self, candidate: Candidate) -> Runner | None:
        """Engine, device and threads that would run a candidate; None if none can."""
        if candidate.path is None:
            return None
        if candidate.kind is Kind.TRAINED:  # in memory, with a cache of the usual type
            return replace(Runner.of(self.model.info), streamed_tenths=0, cache_type=None)
        if candidate.variant:  # derived from the target's loaded weights
            return Runner.of(self.model.info)
        try:
            return drafter_runner(
                candidate.path, self.target.backend, self.threads, self.gpu_layers
            )
        except ModelError:
            return None

    def _remembered(self, candidate: Candidate) -> "_Remembered":
        """Acceptance with this target at all temperatures."""
        key = self._memory_key(candidate)
        if key is None:
            return _Remembered()
        known = self.memory.recall(key)
        judged = judged_of(known, is_free=candidate.is_free)[1]
        return _Remembered(share_of(known, is_free=candidate.is_free), judged, known.is_trial)

    def _memory_key(self, candidate: Candidate) -> str | None:
        """Key of a candidate in the acceptance memory; None if its file does not exist yet."""
        if candidate.needs_no_model:
            return candidate.name
        if candidate.path is None:
            return None
        try:
            own = fingerprint(candidate.path, candidate.variant)
        except OSError:
            return None
        return candidate.composition.of(own) if candidate.composition else own


@dataclass(frozen=True, slots=True)
class _Cost:
    """Cost of a drafted token, and of a draft whatever its length, in plain steps."""

    source: CostSource
    draw: float
    start: float = 0.0


@dataclass(frozen=True, slots=True)
class _Remembered:
    """Share of judged tokens that were accepted, None if there are none; is_trial: as in Pair."""

    share: float | None = None
    judged: float = 0.0
    is_trial: bool = False


def share_of(known: Acceptance, *, is_free: bool = False) -> float | None:
    """Acceptance at all temperatures; None if nothing was judged."""
    accepted, judged = judged_of(known, is_free=is_free)
    return accepted / judged if judged else None


def judged_of(known: Acceptance, *, is_free: bool = False) -> tuple[float, float]:
    """Accepted and judged tokens at all temperatures."""
    kinds = "" if is_free else f":{ANY_POSITION}"
    counts = [
        count
        for kind, count in known.counts().items()
        if kind.endswith(kinds) and is_lossless(kind)
    ]
    return sum(count[0] for count in counts), sum(count[1] for count in counts)


def unmeasured(candidate: Candidate, planned: MemoryPlan | None) -> Pair:
    """A candidate for a target without measurements."""
    is_installed = candidate.needs_no_model or candidate.path is not None
    if candidate.is_compatible is False:
        return Pair(candidate, is_installed)
    return Pair(candidate, is_installed, *_memory(candidate, planned))


def _memory(candidate: Candidate, planned: MemoryPlan | None) -> tuple[int | None, Fit | None]:
    """Memory of a candidate with the context it would get, and whether it fits."""
    if candidate.needs_no_model:
        return N_BYTES if candidate.kind is Kind.NGRAM else 0, Fit.FITS
    if candidate.facts is None:
        return None, None
    n_ctx = planned.n_ctx if planned else DEFAULT_CONTEXT
    wanted = bill(candidate.facts, _context(candidate.facts, n_ctx)).total
    if planned is None or planned.room is None:
        return wanted, None
    if candidate.kind is Kind.TRAINED:  # its context is as large as the target's
        return wanted, fit(wanted, planned.room)
    try:
        n_ctx, reductions = drafter_context(candidate.name, candidate.facts, n_ctx, planned.room)
    except DraftUnavailableError:
        return wanted, Fit.TOO_BIG
    size = bill(candidate.facts, n_ctx).total
    return size, Fit.TIGHT if reductions else fit(size, planned.room)


def _context(facts: ModelFacts, n_ctx: int) -> int:
    return min(n_ctx, facts.context_limit or n_ctx)
