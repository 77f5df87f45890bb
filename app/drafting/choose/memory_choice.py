"""Divides memory between a model that does not fit and its drafters, and tells its speed."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from app.drafting.choose.candidates import unopened, unseen
from app.drafting.choose.drafter_info import DrafterInfo, Kind, Target
from app.drafting.choose.pair_knowledge import read_rates
from app.drafting.draft_spec import DraftSpec, head_beside
from app.drafting.drafter_spec import SELF, DrafterSpec
from app.drafting.gain import Cost, CostCurve, expected_gain, share_of
from app.drafting.model_source import drafter_backend, drafter_runner
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import Calibrations
from app.learned.speeds import PlainReplies, disk_speed, gpu_bandwidth, known_disk_speed
from app.learned.store import run_key
from app.loading.pass_time import (
    Contender,
    ReadRates,
    Split,
    SplitRates,
    pass_seconds,
    split_seconds,
    streamed_bytes,
)
from app.loading.placement import (
    GpuPlanner,
    GpuSplit,
    MemoryPlan,
    stream_plan,
    usable,
    with_drafter,
)
from app.loading.select import facts_before
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions
from app.loading.streaming import Outlook, Share
from app.paths import Paths
from backends.base import ModelError, OutOfMemoryError
from backends.engines.backend_selection import LLAMACPP
from backends.engines.engine_facts import expected_runner, quantized, tenths
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from backends.hardware.host import physical_cores
from backends.streaming.mapped_file import DiskSpeed
from backends.streaming.weight_plan import WeightLayout, lock_plan, weight_layout
from decoding.estimation.acceptance import POSITION_PRIOR, TRAINED_PRIOR
from decoding.estimation.cost import CostModel
from models.metadata.identity import fingerprint, stored_bytes
from models.metadata.memory_bill import ModelFacts, bill, facts_of
from models.metadata.trained_drafters import drafter_of, head_facts
from models.reference import HubReference, Reference
from models.self_draft.recipe import Recipe, weights_made
from models.self_draft.self_draft_store import SelfDrafts

_OWN = Recipe("q4_0")
"""Stands for the recipe of `self` until the model is loaded."""

_LEAST_SECONDS = 1e-6
"""Of a pass, where less is expected than nothing."""

_DRAFT = 16
"""Tokens of the draft whose cost is told where its gain is unknown."""


@dataclass(frozen=True, slots=True)
class StreamContenders:
    """Drafters for a model that streams: those that a spec names, or those on this machine.

    own: the recipe of `self`.
    """

    reference: Reference
    facts: ModelFacts
    spec: DraftSpec
    options: SessionOptions
    paths: Paths
    n_ctx: int
    own: Recipe = _OWN

    def all(self, memory_bandwidth: float) -> Iterator[Contender]:
        """Those whose acceptance is known or can be assumed. memory_bandwidth: bytes a second."""
        memory = AcceptanceMemory(self.reference.path, self.paths)
        for candidate in unseen(self._candidates(memory), [self.reference.path]):
            if candidate.path is not None:
                with suppress(ModelError, OSError):
                    yield from self._contender(candidate, memory, memory_bandwidth)

    @property
    def named_bytes(self) -> int:
        """Memory of the drafter models that the spec names, as far as it is known.

        That of a self-drafter which is not made yet is estimated.
        """
        sizes: list[int] = []
        for node in self.spec.nodes:
            for reference in self._references(node):
                with suppress(ModelError):
                    if isinstance(reference, Reference):
                        facts = self._facts_of(reference.path)
                    else:
                        facts = facts_before(reference)
                    if facts is not None:
                        sizes.append(self._memory(facts))
            for own in node.self_drafters:
                with suppress(ModelError, OSError):
                    sizes.append(self._memory(self._own_facts(own.recipe or self.own)))
        return sum(sizes)

    def room(self, best: Split | None) -> int:
        """Bytes to hold for drafters: the best one's, or those of the named ones."""
        if not self.spec.is_automatic:
            return self.named_bytes
        return best.drafter.memory_bytes if best and best.drafter else 0

    def outlook(
        self,
        share: Share,
        layout: WeightLayout,
        disk: DiskSpeed | None,
        rate: float | None,
        best: Split | None,
        split: GpuSplit | None = None,
    ) -> Outlook:
        """What to expect; rate: as computed, instead of which a measured one is told."""
        runner = expected_runner(LLAMACPP, self.options.threads, split.gpu_layers if split else 0)
        streamed = tenths(share.streamed / max(layout.read_bytes(), 1))
        cache_type = quantized(self.options.cache_type)
        runner = replace(runner, streamed_tenths=streamed, cache_type=cache_type)
        with suppress(OSError):
            key = run_key(self.reference.path, "", runner)
            rate = PlainReplies.at(self.paths.plain_replies / f"{key}.json").rate or rate
        drafter, cost = best.drafter if best else None, ""
        if drafter is not None and not drafter.is_measured:
            best = None
            cost = (
                f"a draft of {_DRAFT} tokens by {drafter.name} takes about "
                f"{_DRAFT * drafter.draw_seconds:.2g} s, and its gain is not measured yet"
            )
        return Outlook(share, disk, rate, best if drafter else None, cost, split)

    def _candidates(self, memory: AcceptanceMemory) -> Iterator[DrafterInfo]:
        if self.spec.is_automatic:
            target = Target(self.reference, self.facts, backend=self.options.backend)
            yield from unopened(target, self.paths, memory)
            yield from map(_own_candidate, self._made())
            return
        for node in self.spec.nodes:
            for reference in self._references(node):
                if isinstance(reference, Reference):
                    path = reference.path
                    size = stored_bytes(path)
                    yield DrafterInfo(reference.name, None, None, "", path, read_bytes=size)
            for own in node.self_drafters:
                for path in self._made(own.recipe or self.own):
                    yield replace(_own_candidate(path), name=own.name)

    def _references(self, node: DrafterSpec) -> Iterator[Reference | HubReference]:
        """Models of a node; for own layers, which are left out, those beside the model."""
        own = self.reference.path
        for reference in node.references:
            if not isinstance(reference, Reference) or reference.path != own:
                yield reference
            elif beside := head_beside(TrainedKind.NEXT_TOKEN_LAYERS, own, is_alone=True):
                yield Reference(beside.name, beside)

    def _made(self, recipe: Recipe | None = None) -> list[Path]:
        try:
            made = SelfDrafts(self.paths.self_drafts).all_made(self.reference.path)
        except OSError:
            return []
        slug = recipe.of_weights.slug if recipe else None
        return [path for path in made if slug in (None, _slug(path))]

    def _own_facts(self, recipe: Recipe) -> ModelFacts:
        """Facts of a self-drafter, with an estimated size unless it was made before.

        The model itself with fewer experts needs only a context.
        """
        if not recipe.of_weights.text:
            return replace(self.facts, weight_bytes=0)
        for path in self._made(recipe):
            return facts_of(path)
        return replace(self.facts, weight_bytes=weights_made(self.reference.path, recipe))

    def _contender(
        self, candidate: DrafterInfo, memory: AcceptanceMemory, bandwidth: float
    ) -> Iterator[Contender]:
        path, options = candidate.path, self.options
        assert path is not None
        facts, head = self._facts_of(path), self._head(path)
        variant, longest = (head.kind.variant, head.longest) if head else ("", 0)
        share = share_of(memory.recall(fingerprint(path, variant)))
        is_related = candidate.kind is Kind.SAME_VOCABULARY or facts.n_vocab == self.facts.n_vocab
        if share is None and not is_related:
            return
        runner = drafter_runner(path, options.backend, options.threads, options.gpu_layers)
        calibrations = Calibrations(self.paths, lambda _: None)
        known = calibrations.known_drafter(path, runner, variant, longest)
        weights = facts.read_bytes or candidate.read_bytes or facts.weight_bytes
        read = weights / max(longest, 1)
        prior = TRAINED_PRIOR if head else POSITION_PRIOR
        yield Contender(
            candidate.name,
            self._memory(facts),
            known.of_token if known else read / bandwidth,
            prior if share is None else share,
            is_measured=share is not None,
        )

    def _facts_of(self, path: Path) -> ModelFacts:
        if self._head(path) is not None:
            return head_facts(path, self.reference.path)
        return facts_of(path, drafter_backend(path, self.options.backend))

    def _head(self, path: Path) -> TrainedDrafter | None:
        found = drafter_of(path) if path.is_file() else None
        is_head = found is not None and (found.is_alone or path == self.reference.path)
        return found if is_head else None

    def _memory(self, facts: ModelFacts) -> int:
        return bill(facts, min(self.n_ctx, facts.context_limit or self.n_ctx)).total


def _own_candidate(path: Path) -> DrafterInfo:
    name = f"{SELF}:{_slug(path)}"
    return DrafterInfo(name, Kind.SELF, None, path.name, path, read_bytes=path.stat().st_size)


def _slug(path: Path) -> str:
    return path.stem.partition("-")[2].rpartition("-")[0]


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
    contenders = StreamContenders(reference, facts, spec, options, paths, planned.n_ctx)
    layout = weight_layout(reference.path)
    disk = disk_speed(reference.path, paths)
    rates = read_rates(disk, options.threads or physical_cores(), paths)
    best = None
    if rates is not None:
        budget = planned.lock_bytes or 0
        seconds = pass_seconds(layout, budget, rates)
        best = best_split(contenders.all(rates.memory), seconds, budget)
    chosen = with_drafter(planned, contenders.room(best))
    divided = lock_plan(layout, chosen.lock_bytes or 0)
    share = Share(divided.locked_bytes, divided.read_bytes())
    if rates is None:
        return chosen, Outlook(share, disk)
    rate = 1.0 / rates.seconds(share.streamed, layout.read_bytes())
    return chosen, contenders.outlook(share, layout, disk, rate, best)


def best_split(
    contenders: Iterable[Contender], seconds: Callable[[int, int], float], budget: int
) -> Split:
    """The drafter with the most tokens per second; of equals the first, and none before any.

    seconds: of a pass, by the bytes that a drafter takes from held weights, and by its tokens.
    budget: bytes for held weights and a drafter together; larger drafters are left out.
    """
    plain = seconds(0, 1)
    best = Split(None, 1.0 / plain)
    for one in contenders:
        if one.memory_bytes <= budget:
            passes = partial(seconds, one.memory_bytes)
            curve = CostCurve(lambda drafted, passes=passes: passes(1 + drafted) / plain - 1.0)
            gain = expected_gain(curve, Cost(one.draw_seconds / plain), one.acceptance)
            if gain / plain > best.rate:
                best = Split(one, gain / plain)
    return best


def best_room(contenders: StreamContenders, budget: int, costs: CostModel, held: int) -> int:
    """Bytes of a budget, for drafters and held weights, that the best drafter takes.

    costs: of the model's passes, measured while so many bytes were held. What a pass over one token
    reads more or less with another share is estimated from the disk's speed.

    Raises:
        ModelError: the model's file cannot be read.
    """
    path, paths = contenders.reference.path, contenders.paths
    threads = contenders.options.threads or physical_cores()
    rates = read_rates(known_disk_speed(path, paths), threads, paths)
    if rates is None:
        return 0
    expected = pass_seconds(weight_layout(path), budget, rates)
    then = expected(budget - held, 1)

    def seconds(drafter_bytes: int, n_tokens: int) -> float:
        if n_tokens > costs.largest:
            return math.inf
        return max(costs.seconds(n_tokens) + expected(drafter_bytes, 1) - then, _LEAST_SECONDS)

    best = best_split(contenders.all(rates.memory), seconds, budget)
    return best.drafter.memory_bytes if best.drafter else 0


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


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """Divides one model and its drafters between GPUs, memory and, if it streams, disk."""

    reference: Reference
    spec: DraftSpec
    options: SessionOptions
    paths: Paths
    planner: GpuPlanner
    streams: bool

    def plan(self) -> tuple[MemoryPlan, Outlook | None]:
        """The plan, and what to expect: None if all layers go to GPUs or the engine decides.

        A drafter is given up if what it displaces fits nowhere else. Takes up to two seconds if
        the disk or the memory was not measured before.

        Raises:
            OutOfMemoryError: the processor's part does not fit in memory.
            ModelError: the model's file cannot be read.
        """
        first = self._planned(self.planner, 0)
        if first.split is None:
            return first, None
        contenders = self._contenders(first)
        disk = disk_speed(self.reference.path, self.paths) if self.streams else None
        rates, best = self._rates(disk), None
        if rates is not None:
            room = sum(max(one, 0) for one in usable(self.planner.gpus))
            seconds = split_seconds(lambda taken: self._beside(first, taken), rates)
            best = best_split(contenders.all(rates.gpu), seconds, room)
        chosen = first
        with suppress(OutOfMemoryError):
            chosen = replace(self._beside(first, contenders.room(best)), usual=first.usual)
        split, streamed = chosen.split, streamed_bytes(chosen)
        assert split is not None
        held = split.beside.weight_bytes
        if chosen.lock_bytes is not None:
            held = lock_plan(split.beside, chosen.lock_bytes).locked_bytes
        beside = split.beside.read_bytes()
        rate = 1.0 / rates.seconds(split.read, streamed, beside) if rates else None
        share, layout = Share(held, streamed), self.planner.layout
        return chosen, contenders.outlook(share, layout, disk, rate, best, split)

    def _planned(self, planner: GpuPlanner, reserved: int) -> MemoryPlan:
        return planner.streamed(reserved) if self.streams else planner.plan(reserved)

    def _beside(self, first: MemoryPlan, reserved: int) -> MemoryPlan:
        """The plan beside drafters, which never take from the context."""
        return self._planned(replace(self.planner, asked=first.n_ctx), reserved)

    def _rates(self, disk: DiskSpeed | None) -> SplitRates | None:
        gpu = gpu_bandwidth()
        if gpu is None or (self.streams and disk is None):
            return None
        disk = disk or DiskSpeed(math.inf, "nothing is read from it")
        beside = read_rates(disk, self.options.threads or physical_cores(), self.paths)
        return SplitRates(beside, gpu.bytes_per_second) if beside else None

    def _contenders(self, first: MemoryPlan) -> StreamContenders:
        """Drafters for GPUs, of which those that are named for the processor take nothing."""
        nodes = tuple(node for node in self.spec.nodes if not node.on_processor)
        facts, spec = self.planner.facts, replace(self.spec, nodes=nodes)
        return StreamContenders(self.reference, facts, spec, self.options, self.paths, first.n_ctx)
