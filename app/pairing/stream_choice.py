"""Plans a model that streams: what is held beside its drafter, and what speed to expect."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from app.drafting.drafter_engine import drafter_backend, drafter_runner
from app.drafting.spec.draft_spec import DraftSpec
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import Calibrations
from app.learned.disk_speeds import disk_speed, known_disk_speed
from app.learned.memory_bandwidth import processor_bandwidth
from app.learned.plain_replies import PlainReplies
from app.learned.run_key import run_key
from app.loading.fetch_model import facts_before
from app.loading.memory_plan import MemoryPlan
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions
from app.loading.streaming.memory_split import Contender, Split, best_split
from app.loading.streaming.outlook import Outlook, Share
from app.loading.streaming.pass_time import ReadRates, pass_seconds
from app.loading.streaming.stream_plan import stream_plan, with_drafter
from app.pairing.candidate import Candidate, Kind, Target
from app.pairing.candidates import unopened
from app.pairing.pair_knowledge import share_of
from app.paths import Paths
from backends.base import ModelError
from backends.engines.backend_names import LLAMACPP
from backends.engines.runner import expected_runner, tenths
from backends.hardware.host import physical_cores
from backends.streaming.lock_plan import lock_plan
from backends.streaming.weight_layout import WeightLayout, weight_layout
from decoding.estimation.acceptance_estimates import POSITION_PRIOR
from models.metadata.fingerprint import fingerprint
from models.metadata.memory_bill import bill
from models.metadata.model_facts import ModelFacts, facts_of
from models.metadata.model_files import stored_bytes
from models.reference import Reference

_DRAFT = 16
"""Tokens of the draft whose cost is told where its gain is unknown."""


def planned_stream(
    reference: Reference,
    facts: ModelFacts,
    spec: DraftSpec,
    options: SessionOptions,
    paths: Paths,
    usual: int,
    free: int,
) -> tuple[MemoryPlan, Outlook]:
    """Divide memory between a model's weights and its drafters, and tell what to expect.

    A drafter that was not measured with this model is credited with the prior acceptance of drafter
    models for the division, and with nothing in the outlook. free: bytes of memory. Takes up to two
    seconds if the disk or the memory was not measured before.

    Raises:
        OutOfMemoryError: context and working memory alone do not fit.
        ModelError: the model's file cannot be read.
    """
    planned = stream_plan(reference.name, facts, options.ctx, usual, free)
    budget = planned.lock_bytes
    assert budget is not None
    layout = weight_layout(reference.path)
    disk = disk_speed(reference.path, paths)
    memory = processor_bandwidth(options.threads or physical_cores(), paths)
    if disk is None or memory is None:
        taken = sum(named_bytes(spec, facts, planned.n_ctx, options.backend))
        chosen = with_drafter(planned, taken)
        return chosen, Outlook(_share(layout, chosen), disk)
    rates = ReadRates(disk.bytes_per_second, memory.bytes_per_second)
    seconds = pass_seconds(layout, budget, rates)
    target = HeldBeside(reference, facts, spec, options, paths, planned.n_ctx, rates.memory)
    best = target.best(seconds, budget)
    taken = best.drafter.memory_bytes if best.drafter else 0
    if not spec.is_automatic:
        taken = sum(named_bytes(spec, facts, planned.n_ctx, options.backend))
    chosen = with_drafter(planned, taken)
    share = _share(layout, chosen)
    ran = measured_rate(
        reference.path, options, 0, share.streamed / max(layout.bytes_per_token, 1), paths
    )
    rate = ran or 1.0 / rates.seconds(share.streamed, layout.bytes_per_token)
    is_claimed = best.drafter is not None and best.drafter.is_measured
    outlook = Outlook(share, disk, rate, best if is_claimed else None, draft_cost(best))
    return chosen, outlook


def expected_streaming_rate(path: Path, free: int, memory: float, paths: Paths) -> float | None:
    """Tokens a second of a model that streams without a drafter; None where nothing was measured.

    free: bytes of memory; memory: bytes read from it per second. Reads headers, measures nothing.
    """
    disk = known_disk_speed(path, paths)
    if disk is None:
        return None
    with suppress(ModelError):
        planned = stream_plan(path.name, facts_of(path), None, DEFAULT_CONTEXT, free)
        layout, budget = weight_layout(path), planned.lock_bytes or 0
        rates = ReadRates(disk.bytes_per_second, memory)
        return 1.0 / pass_seconds(layout, budget, rates)(0, 1)
    return None


def named_bytes(spec: DraftSpec, target: ModelFacts, n_ctx: int, wanted: str) -> Iterator[int]:
    """Memory of each drafter model that a spec names and whose file or figures are at hand.

    The target itself with fewer experts needs only a context.
    """
    for node in spec.nodes:
        for recipe in node.recipes:
            if not recipe.of_weights.text:
                yield _memory(replace(target, weight_bytes=0), n_ctx)
        for reference in node.references:
            with suppress(ModelError):
                if isinstance(reference, Reference):
                    path = reference.path
                    facts = facts_of(path, drafter_backend(path, wanted))
                else:
                    facts = facts_before(reference)
                if facts is not None:
                    yield _memory(facts, n_ctx)


@dataclass(frozen=True, slots=True)
class HeldBeside:
    """The drafter to hold beside a model, by what is known before anything is loaded.

    n_ctx: tokens of the model's context. read_rate: bytes per second at which drafters are read.
    """

    reference: Reference
    facts: ModelFacts
    spec: DraftSpec
    options: SessionOptions
    paths: Paths
    n_ctx: int
    read_rate: float

    def best(self, seconds: Callable[[int, int], float], budget: int) -> Split:
        """The division with the most tokens per second; arguments as of best_split."""
        return best_split(self._contenders(), seconds, budget)

    def _contenders(self) -> Iterator[Contender]:
        memory = AcceptanceMemory(self.reference.path, self.paths)
        seen = [self.reference.path.resolve()]
        for candidate in self._candidates(memory):
            if candidate.path is None or candidate.path.resolve() in seen:
                continue
            seen.append(candidate.path.resolve())
            with suppress(ModelError, OSError):
                yield from self._contender(candidate, memory)

    def _candidates(self, memory: AcceptanceMemory) -> Iterator[Candidate]:
        if self.spec.is_automatic:
            target = Target(self.reference, self.facts, backend=self.options.backend)
            yield from unopened(target, self.paths, memory)
            return
        for node in self.spec.nodes:
            for reference in node.references:
                if isinstance(reference, Reference):
                    path = reference.path
                    size = stored_bytes(path)
                    yield Candidate(reference.name, None, None, "", path, read_bytes=size)

    def _contender(self, candidate: Candidate, memory: AcceptanceMemory) -> Iterator[Contender]:
        """A candidate with its figures; nothing if no acceptance can be assumed of it."""
        path, wanted = candidate.path, self.options.backend
        assert path is not None
        facts = facts_of(path, drafter_backend(path, wanted))
        share = share_of(memory.recall(fingerprint(path)))
        is_related = candidate.kind is Kind.SAME_VOCABULARY or facts.n_vocab == self.facts.n_vocab
        if share is None and not is_related:
            return
        runner = drafter_runner(path, wanted, self.options.threads, self.options.gpu_layers)
        known = Calibrations(self.paths, lambda _: None).known_drafter(path, runner)
        read = candidate.read_bytes or facts.weight_bytes
        yield Contender(
            candidate.name,
            _memory(facts, self.n_ctx),
            known.draw_seconds if known else read / self.read_rate,
            POSITION_PRIOR if share is None else share,
            is_measured=share is not None,
        )


def _memory(facts: ModelFacts, n_ctx: int) -> int:
    return bill(facts, min(n_ctx, facts.context_limit or n_ctx)).total


def _share(layout: WeightLayout, planned: MemoryPlan) -> Share:
    divided = lock_plan(layout, planned.lock_bytes or 0)
    return Share(divided.locked_bytes, divided.read_bytes_per_token)


def measured_rate(
    path: Path, options: SessionOptions, gpu_layers: int, streamed: float, paths: Paths
) -> float | None:
    """Tokens a second of plain decoding when a similar share streamed; None if it never did.

    gpu_layers: as the engine counts them. streamed: share of the bytes that a token reads.
    """
    runner = expected_runner(LLAMACPP, options.threads, gpu_layers)
    runner = replace(runner, streamed_tenths=tenths(streamed))
    try:
        file = paths.plain_replies / f"{run_key(path, '', runner)}.json"
    except OSError:
        return None
    return PlainReplies.at(file).rate


def draft_cost(best: Split) -> str:
    """What a draft takes whose gain is unknown, in words; empty where the gain is known."""
    drafter = best.drafter
    if drafter is None or drafter.is_measured:
        return ""
    seconds = _DRAFT * drafter.draw_seconds
    return (
        f"a draft of {_DRAFT} tokens by {drafter.name} takes about {seconds:.2g} s, and its gain "
        "is not measured yet"
    )
