"""Everything measured on this machine about drafters for a target: the base of all rankings.

Acceptance comes from replies, tuning or a trial with this target, costs from calibration.
"""

from dataclasses import dataclass, replace
from typing import Self

from app.drafting.drafter_engine import drafter_runner
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import Calibrations
from app.learned.run_key import run_key
from app.learned.trial_results import TrialResult, TrialResults
from app.loading.memory_plan import MemoryPlan, drafter_context
from app.loading.session_options import DEFAULT_CONTEXT
from app.pairing.candidate import Candidate, Kind, Target
from app.pairing.ranking import CostSource, Pair
from backends.base import DraftUnavailableError, Model, ModelError
from backends.engines.runner import Runner
from decoding.drafters.ngram.ngram_table import N_BYTES
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.acceptance_keys import ANY_POSITION, is_lossless
from decoding.estimation.cost import CostModel, DraftCost, TreeCosts
from decoding.planning.draft_length import break_even, predicted_speedup
from models.metadata.fingerprint import fingerprint
from models.metadata.memory_bill import Fit, bill, fit
from models.metadata.model_facts import ModelFacts


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
    findings: TrialResults

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
        """Knowledge of a target whose costs were measured, with the findings saved for it."""
        findings = TrialResults(model.info, calibrations.paths)
        return cls(target, model, threads, gpu_layers, calibrations, costs, memory, findings)

    def pair(self, one: Candidate, planned: MemoryPlan | None) -> Pair:
        """A candidate with every figure known for it with this target."""
        pair = unmeasured(one, planned)
        if one.is_compatible is False:
            return pair
        finding = self.finding(one)
        if finding is not None and finding.failed:
            return replace(pair, drafter=replace(one, is_compatible=False, why=finding.failed))
        cost, source = self._draw_cost(one, finding)
        share, is_trial = self._remembered(one)
        costs = TreeCosts(self.costs, one.tree) if one.tree else self.costs
        expected = one.tuned.acceptance if share is None and one.tuned else share
        speedup = None
        if cost is not None and expected is not None and not one.is_free:
            speedup = predicted_speedup(lambda _: expected, costs, cost)
        return replace(
            pair,
            draw_cost=cost,
            cost_source=source,
            acceptance=share,
            is_trial=is_trial,
            speedup=speedup,
            break_even=None if cost is None else break_even(costs, cost),
        )

    def finding(self, one: Candidate) -> TrialResult | None:
        """Result of the last automatic attempt to use a candidate, with the present settings."""
        return self.findings.of(self.key(one))

    def key(self, one: Candidate) -> str | None:
        """Key of a candidate's finding; None if it is not available on this machine."""
        info = self.model.info
        try:
            if one.recipe is not None:
                return run_key(info.path, one.recipe.slug, Runner.of(info))
            runner = self._runner(one)
            return run_key(one.path, one.variant, runner) if one.path and runner else None
        except OSError:
            return None

    def _draw_cost(
        self, one: Candidate, finding: TrialResult | None
    ) -> tuple[float | None, CostSource | None]:
        """Cost of one drafted token in plain steps, and its source."""
        if one.needs_no_model:
            return 0.0, CostSource.FREE
        if one.kind is Kind.COMPOSED:
            return None, None
        measured, source = self._measured_cost(one, finding)
        if measured is not None:
            return measured, source
        if one.read_bytes is None:
            return None, None
        return one.read_bytes / max(self.model.info.bytes_read_per_token, 1), CostSource.SIZE

    def _measured_cost(
        self, one: Candidate, finding: TrialResult | None
    ) -> tuple[float | None, CostSource]:
        """Cost of a drafted token by calibration, else by tuning, else by the last attempt."""
        calibrated = self._calibrated_cost(one)
        if calibrated is not None:
            source = CostSource.MEASURED if calibrated.is_steady else CostSource.BUSY
            return calibrated.draw_seconds / self.costs.seconds(1), source
        if one.tuned is not None:
            return one.tuned.draw_cost, CostSource.MEASURED
        return finding.draw_cost if finding else None, CostSource.MEASURED

    def _calibrated_cost(self, one: Candidate) -> DraftCost | None:
        """Saved calibration of a drafter model, run as a session with this target would."""
        runner = self._runner(one)
        if one.path is None or runner is None:
            return None
        try:
            return self.calibrations.known_drafter(one.path, runner, one.variant)
        except OSError:
            return None

    def _runner(self, one: Candidate) -> Runner | None:
        """Engine, device and threads that would run a candidate; None if none can."""
        if one.path is None:
            return None
        if one.variant:  # derived from the target's loaded weights
            return Runner.of(self.model.info)
        try:
            return drafter_runner(one.path, self.target.backend, self.threads, self.gpu_layers)
        except ModelError:
            return None

    def _remembered(self, one: Candidate) -> tuple[float | None, bool]:
        """Acceptance with this target at all temperatures, and whether only a trial gave it."""
        key = self._memory_key(one)
        if key is None:
            return None, False
        known = self.memory.recall(key)
        return share_of(known, is_free=one.is_free), known.is_trial

    def _memory_key(self, one: Candidate) -> str | None:
        """Key of a candidate in the acceptance memory; None if its file does not exist yet."""
        if one.needs_no_model:
            return one.name
        if one.path is None:
            return None
        try:
            own = fingerprint(one.path, one.variant)
        except OSError:
            return None
        return one.composition.of(own) if one.composition else own


def share_of(known: Acceptance, *, is_free: bool = False) -> float | None:
    """Acceptance at all temperatures; None if nothing was judged."""
    kinds = "" if is_free else f":{ANY_POSITION}"
    counts = [
        count
        for kind, count in known.counts().items()
        if kind.endswith(kinds) and is_lossless(kind)
    ]
    judged = sum(count[1] for count in counts)
    return sum(count[0] for count in counts) / judged if judged else None


def unmeasured(one: Candidate, planned: MemoryPlan | None) -> Pair:
    """A candidate for a target without measurements."""
    is_installed = one.needs_no_model or one.path is not None
    if one.is_compatible is False:
        return Pair(one, is_installed)
    return Pair(one, is_installed, *_memory(one, planned))


def _memory(one: Candidate, planned: MemoryPlan | None) -> tuple[int | None, Fit | None]:
    """Memory of a candidate with the context it would get, and whether it fits."""
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
        n_ctx, reductions = drafter_context(one.name, one.facts, n_ctx, planned.room)
    except DraftUnavailableError:
        return wanted, Fit.TOO_BIG
    size = bill(one.facts, n_ctx).total
    return size, Fit.TIGHT if reductions else fit(size, planned.room)


def _context(facts: ModelFacts, n_ctx: int) -> int:
    return min(n_ctx, facts.context_limit or n_ctx)
