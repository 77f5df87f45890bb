"""Opens a session: chooses the model, fits it into memory, loads it and builds its drafters."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.drafting import draft_spec
from app.drafting.choose.memory_choice import SplitChoice, planned_stream
from app.drafting.draft_spec import DraftSpec
from app.engine.session import Session
from app.engine.session_drafters import Drafting
from app.engine.weight_budget import WeightBudget, built
from app.learned.calibrations import Calibrations
from app.learned.speeds import PlainReplies, memory_bandwidth
from app.loading.checked_loader import CheckedLoader
from app.loading.placement import (
    GpuPlanner,
    MemoryPlan,
    can_stream,
    open_context,
    plan,
    with_sequences,
)
from app.loading.select import (
    expected_backend,
    facts_before,
    fetch_model,
    lasting_name,
    model_choices,
)
from app.loading.session_options import (
    DEFAULT_CONTEXT,
    STREAM_OFF,
    STREAM_ON,
    SessionOptions,
    check_ranges,
)
from app.loading.streaming import Outlook, StreamOfferError, is_agreed, may_stream, streaming_rate
from app.loading.target_context import TargetContext
from app.paths import Paths, own_entries
from app.process import return_large_blocks
from backends.base import ModelError, ModelInfo, OutOfMemoryError, PeerLostError, UsageError
from backends.base.errors import DeviceLostError
from backends.base.safe_files import remove_leftovers
from backends.chat.chat_template import ChatTemplate
from backends.chat.template_process import TemplateProcess
from backends.engines.backend_selection import MLX, REMOTE, check_backend, forms
from backends.engines.engine_facts import free_memory, separate_gpus
from backends.engines.engine_facts import gpus as gpus_here
from backends.engines.model_loading import open_peers
from backends.hardware import gpu_loss
from backends.hardware.host import available_memory
from backends.hardware.nvidia import energy_meter
from backends.streaming.weight_plan import weight_layout
from models.metadata.identity import projector_beside
from models.metadata.memory_bill import ModelFacts, facts_of_target
from models.reference import HubReference, Reference

if TYPE_CHECKING:
    from backends.llamacpp.rpc import Peers

_NEW = "this model is new here; it is measured in idle time, or after the first answer"
_LARGE_BYTES = 500_000_000
"""Weights from which on measuring takes more than the second it has (decoding/estimation); with
1.2 GB it took 2 to 4 s on two cores, with 8 GB 9 s."""

_UNLIKE = 0.05
"""Share of the weights; where as many more or fewer are held than planned, no speed is told."""


def open_session(
    options: SessionOptions,
    paths: Paths,
    notify: Callable[[str], None],
    usual_context: int = DEFAULT_CONTEXT,
    *,
    every_form: bool = False,
    measures_later: bool = False,
) -> Session:
    """Load the model and its drafters; notify gets a line on each phase.

    usual_context: context size unless the options set one. every_form: drafter models also draft
    trees and paths where these are not expected to gain, for checks. measures_later: where it takes
    seconds to measure the model, it is ready before, and drafters are left to Session.redraft.
    Without a named model, one that cannot be run is passed over for the next choice, with a note.

    Raises:
        SpecchatError: an option cannot be met, or no model can be run.
        PassStoppedError: loading was stopped.
    """
    return_large_blocks()
    for entry in own_entries(paths):
        remove_leftovers(Path(entry.path))
    check_backend(options.backend)
    check_ranges(options)
    if options.backend == REMOTE:
        from app.engine.remote_opening import open_verified

        return open_verified(options, paths, notify)
    errors: list[ModelError] = []
    passed_over: list[str] = []
    opening = _Opening(options, paths, notify, usual_context, every_form, measures_later)
    for chosen in model_choices(options.model, paths, forms(options.backend)):
        try:
            return opening.open(chosen, passed_over)
        except (OutOfMemoryError, PeerLostError):  # at the next start there may be enough
            raise
        except ModelError as error:
            errors.append(error)
            why = error.summary
            passed_over.append(f"{chosen.name} is passed over: {why}")
    raise errors[0]


@dataclass(frozen=True, slots=True)
class _Opening:
    options: SessionOptions
    paths: Paths
    notify: Callable[[str], None]
    usual_context: int
    every_form: bool
    measures_later: bool

    def open(self, chosen: Reference | HubReference, notes: list[str]) -> Session:
        """Open a session on a model, on the processor alone if it runs there and on no GPU.

        notes: those to add its own to.
        """
        options, why = self.options, gpu_loss.why()
        is_mlx = expected_backend(chosen, options.backend) == MLX
        is_final = is_mlx or options.gpu_layers == 0 or bool(options.peers)
        try:
            if is_final or not why:
                return self._open(chosen, notes)
        except DeviceLostError as error:
            if is_final:
                raise
            why = error.why
        alone = replace(self, options=replace(options, gpu_layers=0))
        told = f"the GPU is not used until the next start: {why}"
        session = alone.open(chosen, [*notes, told])
        gpu_loss.lose(why)
        return session

    def _open(self, chosen: Reference | HubReference, notes: list[str]) -> Session:
        started = time.perf_counter()
        options, paths, notify = self.options, self.paths, self.notify
        spec = draft_spec.parse(options.draft, paths, chosen, forms(options.backend))
        with ExitStack() as stack:
            reference, planned, outlook, peers = self._obtained(chosen, spec, stack)
            if outlook is not None and outlook.streams:
                speed = f": {streaming_rate(outlook.rate)}" if outlook.rate else ""
                notify(f"loading {reference.name}, which streams{speed}")
            templates = stack.enter_context(closing(TemplateProcess()))
            layers = planned.split.gpu_layers if planned.split else options.gpu_layers
            drafts, sequences = bool(spec.nodes), 1
            try:
                model = CheckedLoader(paths, notify).load(
                    reference.path,
                    options.threads,
                    layers,
                    options.backend,
                    lock_bytes=planned.lock_bytes,
                    cache_type=options.cache_type,
                    projector=projector_beside(reference.path),
                    peers=peers,
                )
                stack.callback(model.close)
                if options.parallel is not None and options.parallel > 1:
                    facts = facts_of_target(reference.path, model.info.backend).with_cache(
                        options.cache_type
                    )
                    planned, sequences = with_sequences(planned, facts, options.parallel)
                opened, reductions = open_context(
                    model, planned, options.ctx, drafts=drafts, sequences=sequences
                )
            except OutOfMemoryError as error:  # others took it, or too much was asked for
                gpus = gpus_here(expected_backend(reference, options.backend))
                if peers is not None or layers == 0 or all(gpu.is_unified for gpu in gpus):
                    raise
                stack.close()
                whole = weight_layout(reference.path).n_layers + 1
                less = replace(options, gpu_layers=min(layers or whole, whole) // 2)
                why = f"less of {reference.name} is on the GPU than planned: {error.why}"
                return replace(self, options=less).open(chosen, list(dict.fromkeys((*notes, why))))
            context = TargetContext(model, opened, drafts=drafts)
            spec.check(reference.name, model.info.n_layers, model.info.active_experts)
            if options.threads and model.info.backend == MLX:
                reductions.append("--threads has no effect: MLX chooses its threads itself")
            meter = None  # of a divided model, one here would tell only a part
            if peers is None:
                meter = energy_meter(on_gpu=model.info.device.startswith("GPU"))
            budget = WeightBudget.of(planned)
            session = Session(
                paths=paths,
                reference=reference,
                model=model,
                context=context,
                template=ChatTemplate(model.tokenizer, templates),
                drafting=Drafting(spec.requested),
                bandwidth=memory_bandwidth(model.info, paths),
                meter=meter,
                notes=(*notes, *_stream_notes(model.info, outlook), *reductions),
                options=options,
                room=budget.bytes if budget else planned.room,
                budget=budget,
                sequences=sequences,
                disk=outlook.disk if outlook else None,
            )
            environment = replace(session.environment(notify), every_form=self.every_form)
            is_later = self.measures_later and budget is None
            is_later = is_later and model.info.weight_bytes >= _LARGE_BYTES
            if is_later and Calibrations(paths, notify).known_target(model.info) is None:
                session.drafting = Drafting("", _NEW)
            else:
                session.drafting = built(spec, environment, budget)
            speeds = PlainReplies.of(model.info, paths)
            session.plain_replies = speeds.with_measured(session.drafting.plain_rate or 0.0)
            session.resources = stack.pop_all()
        session.load_seconds = time.perf_counter() - started
        return session

    def _obtained(
        self, chosen: Reference | HubReference, spec: DraftSpec, stack: ExitStack
    ) -> tuple[Reference, MemoryPlan, Outlook | None, "Peers | None"]:
        """The model on this machine, downloaded if need be, and what fits into memory with it.

        The outlook is None for a model that fits whole into memory, or on GPUs. stack: closes the
        other machines that are to hold layers, if there are any.
        """
        options, paths, notify, usual = self.options, self.paths, self.notify, self.usual_context
        free = None
        if not options.peers:
            free = free_memory(expected_backend(chosen, options.backend), options.gpu_layers)
        free = None if free is None else max(free - options.reserved, 0)
        if (expected := facts_before(chosen)) is not None:  # what cannot fit is not downloaded
            self._check_before_download(chosen.name, expected.with_cache(options.cache_type), free)
        reference = fetch_model(chosen, paths, notify, offline=options.offline)
        notify(f"loading {reference.name}")
        facts = facts_of_target(reference.path, expected_backend(reference, options.backend))
        facts = facts.with_cache(options.cache_type)
        spec.check(reference.name, facts.n_layers, facts.active_experts)
        peers = self._connected(reference, stack)
        planner = self._gpu_planner(reference, facts, peers)
        try:
            if peers is not None and planner is not None:
                return reference, planner.plan(), None, peers
            if planner is not None:
                split = SplitChoice(reference, spec, options, paths, planner, streams=False)
                return reference, *split.plan(), None
            return reference, plan(reference.name, facts, options.ctx, usual, free), None, None
        except OutOfMemoryError as refusal:
            if peers is not None:
                raise
            free = planner.free if planner is not None else free
            is_lent = planner is None and options.gpu_layers  # on a GPU that shares the memory
            if free is None or is_lent or not may_stream(reference, facts, options, free):
                raise
            planned, outlook = self._streamed(reference, facts, spec, free, planner)
            if not is_agreed(reference.path, options, paths):
                name = options.model or lasting_name(reference)
                raise StreamOfferError(refusal, name, reference.path, outlook) from refusal
            return reference, planned, outlook, None

    def _connected(self, reference: Reference, stack: ExitStack) -> "Peers | None":
        """The machines that are to hold layers of the model; None without any."""
        if not (addresses := self.options.peers):
            return None
        if expected_backend(reference, self.options.backend) == MLX:
            raise UsageError("--rpc cannot be used with MLX", "only llama.cpp divides models")
        self.notify(f"connecting to {self.options.rpc}")
        peers = open_peers(addresses)
        stack.callback(peers.close)
        return peers

    def _streamed(
        self,
        reference: Reference,
        facts: ModelFacts,
        spec: DraftSpec,
        free: int,
        planner: GpuPlanner | None,
    ) -> tuple[MemoryPlan, Outlook]:
        options, paths, usual = self.options, self.paths, self.usual_context
        if planner is None:
            return planned_stream(reference, facts, spec, options, paths, usual, free)
        planned, outlook = SplitChoice(
            reference, spec, options, paths, planner, streams=True
        ).plan()
        assert outlook is not None
        return planned, outlook

    def _gpu_planner(
        self, reference: Reference, facts: ModelFacts, peers: "Peers | None"
    ) -> GpuPlanner | None:
        """Planner for GPUs with memory of their own; None without one whose memory is known.

        Devices of other machines come first; any GPU here is then planned for.
        """
        options, free = self.options, available_memory()
        backend = expected_backend(reference, options.backend)
        gpus = separate_gpus(backend, options.gpu_layers)
        if peers is not None:
            gpus = (*peers.gpus, *gpus_here(backend))
            free -= sum(gpu.free_bytes or 0 for gpu in gpus if gpu.is_unified)
        if not gpus:
            return None
        return GpuPlanner(
            reference.name,
            facts,
            weight_layout(reference.path),
            options.ctx,
            self.usual_context,
            options.gpu_layers,
            tuple(gpu.free_bytes or 0 for gpu in gpus),
            max(free, 0),
        )

    def _check_before_download(self, name: str, facts: ModelFacts, free: int | None) -> None:
        """Refuse a model of the catalogue that neither fits nor is to stream."""
        try:
            plan(name, facts, self.options.ctx, self.usual_context, free)
        except OutOfMemoryError as refusal:
            if self.options.stream == STREAM_ON and free is not None and can_stream(facts, free):
                return
            remedy = f"{refusal.remedy}\nWith --stream on it is downloaded, and read from disk."
            is_off = self.options.stream == STREAM_OFF
            raise (
                refusal if is_off else OutOfMemoryError(refusal.what, refusal.why, remedy)
            ) from refusal


def _stream_notes(info: ModelInfo, outlook: Outlook | None) -> Iterator[str]:
    """What to know of a model that streams, or is partly on a GPU."""
    if outlook is not None:
        if outlook.split is not None:
            place = "memory" if outlook.streams else "the GPU"
            yield f"{info.name} is larger than {place}: {outlook.words}"
        else:
            streamed = info.streamed_bytes_per_token
            is_as_planned = abs(streamed - outlook.share.streamed) < _UNLIKE * info.weight_bytes
            held = info.bytes_read_per_token - streamed
            share = replace(outlook.share, held=held, streamed=streamed)
            words = outlook.words if is_as_planned else f"{share.words} beside its drafters"
            yield f"{info.name} is larger than memory: {words}"
    if info.lock_refusal:
        yield f"less of {info.name} is held in memory than planned: {info.lock_refusal}"
