"""Builds the drafters of a session from the links of a spec."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from app.drafting import self_drafter, self_speculation
from app.drafting.branching import Branching
from app.drafting.composed_drafter import Composer
from app.drafting.drafter_engine import drafter_backend, load_drafter
from app.drafting.drafter_handle import DrafterHandle
from app.drafting.drafter_id import composed
from app.drafting.drafter_model import open_drafter, tried
from app.drafting.spec.branching_spec import PathsSettings, TreeSettings
from app.drafting.spec.drafter_node import DrafterNode, LinkKind
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import Calibrations
from app.learned.ngram_file import NgramFile
from app.learned.ngram_memory import NgramMemory
from app.learned.tuned_recipe import own_recipe, set_aside_unusable
from app.loading.fetch_model import facts_before
from app.loading.memory_plan import drafter_context
from app.loading.proven_models import ProvenModels
from app.loading.target_context import TargetContext
from app.paths import Paths
from app.settings.learning import may_index, may_learn
from backends.base import DraftUnavailableError, Model
from backends.engines.backend_names import AUTO
from backends.engines.model_loading import derives
from decoding.draft import Drafter
from decoding.drafters.lookup.prompt_lookup import PromptLookup
from decoding.drafters.ngram.ngram import Ngram
from decoding.drafters.retrieval.corpus import Corpus
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.estimation.cost import CostModel
from decoding.planning.managed_drafter import ManagedDrafter
from models.metadata.fingerprint import fingerprint
from models.metadata.model_facts import ModelFacts, facts_of
from models.metadata.vocabulary_match import vocabulary_digest
from models.reference import HubReference, Reference, at_hand
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts

_FOLDER_DIGITS = 24


@dataclass(frozen=True, slots=True)
class DrafterEnvironment:
    """Environment of drafters: the target, its context, and options for running models."""

    target: Model
    context: TargetContext
    paths: Paths
    threads: int | None
    gpu_layers: int | None
    notify: Callable[[str], None]
    room: int | None = None
    """Memory for drafters in bytes, None if unknown."""
    obtain: Callable[[Reference | HubReference], Reference] = at_hand
    """Downloads a missing drafter, or raises with a remedy."""
    backend: str = AUTO
    """The requested backend."""
    every_form: bool = False
    """Whether drafter models also draft trees and paths that are not expected to gain."""

    @property
    def models(self) -> ProvenModels:
        """Loader of drafter models."""
        return ProvenModels(self.paths, self.notify)


def open_corpus(paths: Paths, target: Model) -> Corpus:
    """The index of earlier chats in a model's vocabulary; it may be empty."""
    digest = vocabulary_digest(target.tokenizer)
    return Corpus(paths.retrieval / digest.hex()[:_FOLDER_DIGITS], digest)


class Builder:
    """Builds the drafters of one session in turn, within the memory that is left.

    reductions: of contexts, to fit the drafters into memory.
    """

    def __init__(
        self, place: DrafterEnvironment, calibrations: Calibrations, memory: AcceptanceMemory
    ) -> None:
        self.reductions: list[str] = []
        self._place = place
        self._calibrations = calibrations
        self._memory = memory
        self._room = place.room

    def build(self, link: DrafterNode) -> DrafterHandle:
        """Build a drafter and its parts.

        Raises:
            DraftUnavailableError: it cannot draft for this target.
            DownloadError: its model cannot be downloaded.
            ModelError: its model cannot be run.
        """
        built = self._made(link)
        if self._room is not None:
            self._room -= built.held_bytes
        return built

    def beside(self, built: DrafterHandle, costs: CostModel) -> Iterator[DrafterHandle]:
        """Drafters of trees and paths that may gain, which share a drafter's model."""
        branching = Branching(self._place.target, self._place.context, self._memory)
        yield from branching.beside(built, costs, always=self._place.every_form)

    def drop(self, built: DrafterHandle) -> None:
        """Free a drafter that will not be used."""
        if self._room is not None:
            self._room += built.held_bytes
        built.close()

    def _made(self, link: DrafterNode) -> DrafterHandle:
        match link.kind:
            case LinkKind.LOOKUP:
                return self._free(link, PromptLookup())
            case LinkKind.RETRIEVAL:
                return self._retrieval(link)
            case LinkKind.NGRAM:
                return self._ngram(link)
            case LinkKind.JACOBI | LinkKind.LOOKAHEAD:
                info, context = self._place.target.info, self._place.context
                return DrafterHandle(
                    link.name, self_speculation.member(link, info, context, self._memory)
                )
            case LinkKind.SELF | LinkKind.MODEL:
                return self._on_a_model(link)
            case LinkKind.CASCADE | LinkKind.VOTE | LinkKind.TREE | LinkKind.PATHS:
                return self._composed(link)

    def _free(self, link: DrafterNode, drafter: Drafter) -> DrafterHandle:
        """A drafter without a model; its key is its name."""
        return DrafterHandle(link.name, ManagedDrafter(drafter, self._memory.recall(link.name)))

    def _retrieval(self, link: DrafterNode) -> DrafterHandle:
        if not may_index(self._place.paths):
            why = "the setting 'retrieval' keeps earlier chats from being indexed"
            raise DraftUnavailableError(f"{link.name} is switched off", why)
        corpus = open_corpus(self._place.paths, self._place.target)
        built = self._free(link, Retrieval(corpus))
        return replace(built, note="; ".join(corpus.faults), corpus=corpus)

    def _ngram(self, link: DrafterNode) -> DrafterHandle:
        """The n-gram drafter, with the n-grams learned from this model before."""
        place = self._place
        if not may_learn(place.paths):
            return self._free(link, Ngram())
        info = place.target.info
        name = fingerprint(info.path)
        file = NgramFile(place.paths.ngrams / f"{name}.ngrams", name, info.n_vocab)
        learned = NgramMemory(file)
        return replace(self._free(link, learned.drafter), note=learned.note, learned=learned)

    def _composed(self, link: DrafterNode) -> DrafterHandle:
        """A composed drafter, with its parts."""
        with ExitStack() as stack:
            parts: list[DrafterHandle] = []
            for part in link.parts:
                parts.append(self.build(part))
                stack.callback(self.drop, parts[-1])
            built = self._compose(link, parts)
            stack.pop_all()
        if self._room is not None:  # build takes it again with the whole
            self._room += built.held_bytes
        return built

    def _compose(self, link: DrafterNode, parts: Sequence[DrafterHandle]) -> DrafterHandle:
        place = self._place
        composer = Composer(place.target, self._calibrations, self._memory)
        branching = Branching(place.target, place.context, self._memory)
        key = composed(link.kind, [part.key for part in parts], link.settings)
        match link.kind:
            case LinkKind.CASCADE:
                return composer.cascade(link.name, parts)
            case LinkKind.TREE:
                return branching.tree(link.name, key, parts[0], TreeSettings.parse(link.settings))
            case LinkKind.PATHS:
                return branching.paths(link.name, key, parts[0], PathsSettings.parse(link.settings))
            case _:
                return composer.vote(link.name, key, parts)

    def _on_a_model(self, link: DrafterNode) -> DrafterHandle:
        place = self._place
        expected = facts_before(link.reference) if link.reference else None
        if expected is not None:  # what cannot fit is not downloaded
            drafter_context(link.name, expected, place.context.n_ctx, self._room)
        facts, loaded = self._source(link)
        n_ctx, reductions = drafter_context(link.name, facts, place.context.n_ctx, self._room)
        with ExitStack() as stack:
            model = stack.enter_context(closing(loaded()))
            is_own = link.reference is None
            opened = open_drafter(link.name, model, place.target, n_ctx, is_own=is_own)
            context = opened.context
            cost = self._calibrations.drafter(model, context, link.known_as)
            key = fingerprint(model.info.path, model.info.variant)
            acceptance = self._memory.recall(key)
            if not acceptance.counts():
                acceptance = tried(opened, place.target, place.context)
            stack.pop_all()
        self.reductions += reductions
        kv_bytes = context.n_ctx * context.kv_bytes_per_token
        member = ManagedDrafter(opened.drafter, acceptance, cost)
        return DrafterHandle(key, member, model, kv_bytes, opened.note, context=context)

    def _source(self, link: DrafterNode) -> tuple[ModelFacts, Callable[[], Model]]:
        """Facts about a drafter's model, and a function that loads it."""
        place = self._place
        info = place.target.info
        if link.reference is not None:
            path = place.obtain(link.reference).path
            facts = facts_of(path, drafter_backend(path, place.backend))
            return facts, lambda: load_drafter(
                place.models, path, place.backend, place.threads, place.gpu_layers
            )
        if link.recipe is None:
            set_aside_unusable(info, place.paths, place.notify)
        recipe = link.recipe or own_recipe(info, place.paths)
        own = None if derives(info) else self._own_file(recipe)
        return (
            facts_of(own) if own else self_drafter.facts(info, recipe),
            lambda: self_drafter.made(place.target, recipe, own, place.gpu_layers, place.models),
        )

    def _own_file(self, recipe: Recipe) -> Path:
        place = self._place
        words = f"making the self-drafter {recipe.slug}"
        return SelfDrafts(place.paths.self_drafts).get(
            place.target.info,
            recipe,
            lambda done, total: place.notify(f"{words}: {done} of {total}"),
        )
