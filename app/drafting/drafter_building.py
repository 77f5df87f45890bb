"""Builds the drafters of a session from the nodes of a parsed spec."""

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

from app.drafting import self_drafter
from app.drafting.composed_drafter import Composer
from app.drafting.drafter_handle import DrafterEnvironment, DrafterHandle
from app.drafting.drafter_model import open_drafter, trial_texts, tried
from app.drafting.drafter_spec import DrafterSpec, NodeKind
from app.drafting.gain import is_close, together
from app.drafting.model_source import Beside, ModelSource, source_of
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import CONTEXT, Calibrations
from app.learned.ngram_memory import NgramFile, NgramMemory
from app.loading.placement import MemoryPlan, drafter_context, with_sequences
from app.paths import Paths
from app.settings.in_effect import is_on
from backends.base import Context, DraftUnavailableError, Model
from backends.base.model import SharedContext
from backends.engines.engine_facts import separate_gpus
from backends.hardware.host import available_memory
from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.ngram import Ngram
from decoding.drafters.retrieval.corpus import Corpus
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.estimation.acceptance import POSITION_PRIOR, TRAINED_PRIOR, Acceptance
from decoding.estimation.cost import CostModel, DraftCost
from decoding.joined_pass import SharedDrafter
from decoding.planning.managed_drafter import ManagedDrafter
from models.metadata.identity import fingerprint, vocabulary_digest
from models.metadata.memory_bill import bill

_FOLDER_DIGITS = 24


def open_corpus(paths: Paths, target: Model) -> Corpus:
    """The index of earlier chats in a model's vocabulary; it may be empty."""
    digest = vocabulary_digest(target.tokenizer)
    return Corpus(paths.retrieval / digest.hex()[:_FOLDER_DIGITS], digest)


class Builder:
    """Builds the drafters of one session in turn, within the memory that is left.

    costs: of the target's passes. reductions: of contexts, to fit the drafters into memory.
    """

    def __init__(
        self,
        environment: DrafterEnvironment,
        calibrations: Calibrations,
        memory: AcceptanceMemory,
        costs: CostModel,
    ) -> None:
        self.reductions: list[str] = []
        self._environment, self._room = environment, environment.room
        self._calibrations, self._memory, self._costs = calibrations, memory, costs
        self._composer = Composer(environment.target, environment.context, calibrations, memory)

    def build(self, node: DrafterSpec, *, is_to_choose: bool = False) -> DrafterHandle:
        """Build a drafter and its parts.

        is_to_choose: whether it is kept only if it pays, so that a trial goes on where it is close.

        Raises:
            DraftUnavailableError: it cannot draft for this target.
            DownloadError: its model cannot be downloaded.
            ModelError: its model cannot be run.
        """
        handle = self._on_a_model(node, is_to_choose=True) if is_to_choose else self._made(node)
        if self._room is not None:
            self._room -= handle.taken_bytes
        return handle

    def beside(self, handle: DrafterHandle, costs: CostModel) -> Iterator[DrafterHandle]:
        """Drafters of trees on a drafter's model, which may gain beside its lines."""
        yield from self._composer.beside(handle, costs, always=self._environment.every_form)

    def drop(self, handle: DrafterHandle) -> None:
        if self._room is not None:
            self._room += handle.taken_bytes
        handle.close()

    def _made(self, node: DrafterSpec) -> DrafterHandle:
        match node.kind:
            case NodeKind.LOOKUP:
                return self._free(node, PromptLookup())
            case NodeKind.RETRIEVAL:
                return self._retrieval(node)
            case NodeKind.NGRAM:
                return self._ngram(node)
            case NodeKind.JACOBI | NodeKind.LOOKAHEAD:
                info, context = self._environment.target.info, self._environment.context
                return DrafterHandle(
                    node.name, self_drafter.member(node, info, context.facts, self._memory)
                )
            case NodeKind.CASCADE | NodeKind.VOTE | NodeKind.TREE | NodeKind.PATHS:
                return self._composed(node)
            case _:
                return self._on_a_model(node)

    def _free(self, node: DrafterSpec, drafter: Drafter) -> DrafterHandle:
        """A drafter without a model; its key is its name."""
        return DrafterHandle(node.name, ManagedDrafter(drafter, self._memory.recall(node.name)))

    def _retrieval(self, node: DrafterSpec) -> DrafterHandle:
        if not is_on("retrieval", self._environment.paths):
            why = "the setting 'retrieval' keeps earlier chats from being indexed"
            raise DraftUnavailableError(f"{node.name} is switched off", why)
        corpus = open_corpus(self._environment.paths, self._environment.target)
        handle = self._free(node, Retrieval(corpus))
        return replace(handle, note="; ".join(corpus.faults), corpus=corpus)

    def _ngram(self, node: DrafterSpec) -> DrafterHandle:
        environment = self._environment
        if not is_on("learn", environment.paths):
            return self._free(node, Ngram())
        info = environment.target.info
        name = fingerprint(info.path)
        file = NgramFile(environment.paths.ngrams / f"{name}.ngrams", name, info.n_vocab)
        learned = NgramMemory(file)
        return replace(self._free(node, learned.drafter), note=learned.note, learned=learned)

    def _composed(self, node: DrafterSpec) -> DrafterHandle:
        with ExitStack() as stack:
            parts: list[DrafterHandle] = []
            for part in node.parts:
                parts.append(self.build(part))
                stack.callback(self.drop, parts[-1])
            handle = self._composer.compose(node, parts)
            stack.pop_all()
        if self._room is not None:  # build takes it again with the whole
            self._room += handle.taken_bytes
        return handle

    def _cost(
        self, node: DrafterSpec, model: Model, beside: Beside | None, context: Context
    ) -> DraftCost:
        """Cost of a drafter, measured unless it was before; its context is left empty."""
        calibrations, name = self._calibrations, node.known_as
        if beside is None:
            return calibrations.drafter(model, context, name)
        target = self._environment.context

        @contextmanager
        def empty() -> Generator[Context]:
            with target.for_measuring(CONTEXT) as own, closing(beside(own)) as drafting:
                yield drafting

        return calibrations.head(model, context, empty, name, self._costs)

    def _on_a_model(self, node: DrafterSpec, *, is_to_choose: bool = False) -> DrafterHandle:
        environment = self._environment
        is_elsewhere = node.on_processor and self._has_own_memory
        room = available_memory() if is_elsewhere else self._room
        source = source_of(node, environment, room)
        n_ctx, reductions = drafter_context(
            node.name, source.facts, environment.context.facts.n_ctx, room, is_head=source.is_head
        )
        with ExitStack() as stack:
            model, beside = source.load()
            stack.enter_context(closing(model))
            target, is_own = environment.target, source.is_own
            opened = open_drafter(
                node.name,
                model,
                target,
                n_ctx,
                is_own=is_own,
                sequences=self._sequences(source, n_ctx, room),
            )
            context, cells = opened.context, n_ctx
            if isinstance(context, SharedContext):
                cells = context.free_cells
            cost = self._cost(node, model, beside, context)
            if isinstance(opened.drafter, DraftModel):
                opened.drafter.read_singly(cost.single_reads)
                if isinstance(context, SharedContext) and context.max_sequences > 1:
                    opened.drafter.shared = SharedDrafter(context, cost)
            key = fingerprint(model.info.path, model.info.variant)
            prior = TRAINED_PRIOR if source.is_head else POSITION_PRIOR
            member = ManagedDrafter(opened.drafter, self._memory.recall(key), cost, prior=prior)
            trials: list[Acceptance] = []
            for prompt in () if member.estimates.acceptance.counts() else trial_texts():
                trials.append(tried(opened, target, environment.context, prompt, beside))
                member = ManagedDrafter(opened.drafter, together(trials), cost, prior=prior)
                if not (is_to_choose and is_close(member, self._costs)):
                    break
            stack.pop_all()
        self.reductions += reductions
        kept = source.facts.kept_bytes(context.n_ctx)
        return DrafterHandle(
            key,
            member,
            model,
            cells * context.kv_bytes_per_token + kept + context.state_bytes,
            bill(source.facts, context.n_ctx).compute,
            note=opened.note,
            context=context,
            is_head=source.is_head,
            is_elsewhere=is_elsewhere,
        )

    def _sequences(self, source: ModelSource, n_ctx: int, room: int | None) -> int:
        """For as many replies at once a drafter's context is to have room."""
        if source.is_head:
            return 1
        left = None if room is None else room - bill(source.facts, n_ctx).total
        wanted = self._environment.sequences
        return with_sequences(MemoryPlan(n_ctx, n_ctx, left), source.facts, wanted)[1]

    @property
    def _has_own_memory(self) -> bool:
        """Whether the target's device has memory of its own, apart from the processor's."""
        backend = self._environment.target.info.backend
        return bool(separate_gpus(backend, self._environment.gpu_layers))
