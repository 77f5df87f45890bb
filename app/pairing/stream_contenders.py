"""Drafters that could be held beside a model that streams, by what is known before it is loaded."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from app.drafting.drafter_engine import drafter_backend, drafter_runner
from app.drafting.spec.draft_spec import DraftSpec
from app.drafting.spec.drafter_node import SELF, DrafterNode
from app.drafting.spec.head_reference import head_beside
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import Calibrations
from app.loading.fetch_model import facts_before
from app.loading.session_options import SessionOptions
from app.loading.streaming.memory_split import Contender
from app.pairing.candidate import Candidate, Kind, Target
from app.pairing.candidates import unopened
from app.pairing.pair_knowledge import share_of
from app.paths import Paths
from backends.base import ModelError
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from decoding.estimation.acceptance_estimates import POSITION_PRIOR, TRAINED_PRIOR
from models.metadata.fingerprint import fingerprint
from models.metadata.head_facts import head_facts
from models.metadata.memory_bill import bill
from models.metadata.model_facts import ModelFacts, facts_of
from models.metadata.model_files import stored_bytes
from models.metadata.trained_drafters import drafter_of
from models.reference import HubReference, Reference
from models.self_draft.file_size import weights_made
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts

_OWN = Recipe("q4_0")
"""Stands for the recipe of `self` until the model is loaded."""


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
        seen = [self.reference.path.resolve()]
        for candidate in self._candidates(memory):
            if candidate.path is None or candidate.path.resolve() in seen:
                continue
            seen.append(candidate.path.resolve())
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

    def _candidates(self, memory: AcceptanceMemory) -> Iterator[Candidate]:
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
                    yield Candidate(reference.name, None, None, "", path, read_bytes=size)
            yield from self._named_own(node)

    def _references(self, node: DrafterNode) -> Iterator[Reference | HubReference]:
        """Models of a node; for own layers, which are left out, those beside the model."""
        own = self.reference.path
        for reference in node.references:
            if not isinstance(reference, Reference) or reference.path != own:
                yield reference
            elif beside := head_beside(TrainedKind.NEXT_TOKEN_LAYERS, own, is_alone=True):
                yield Reference(beside.name, beside)

    def _named_own(self, node: DrafterNode) -> Iterator[Candidate]:
        """Self-drafters of a node that were made before."""
        for own in node.self_drafters:
            for path in self._made(own.recipe or self.own):
                yield replace(_own_candidate(path), name=own.name)

    def _made(self, recipe: Recipe | None = None) -> list[Path]:
        """Self-drafters of the model that were made before; recipe: None for all."""
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
        self, candidate: Candidate, memory: AcceptanceMemory, bandwidth: float
    ) -> Iterator[Contender]:
        """A candidate with its figures; nothing if no acceptance can be assumed of it."""
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
        """Facts of a drafter's file, which may be a head."""
        if self._head(path) is not None:
            return head_facts(path, self.reference.path)
        return facts_of(path, drafter_backend(path, self.options.backend))

    def _head(self, path: Path) -> TrainedDrafter | None:
        """The head in a drafter's file; None if that is a model."""
        found = drafter_of(path) if path.is_file() else None
        is_head = found is not None and (found.is_alone or path == self.reference.path)
        return found if is_head else None

    def _memory(self, facts: ModelFacts) -> int:
        return bill(facts, min(self.n_ctx, facts.context_limit or self.n_ctx)).total


def _own_candidate(path: Path) -> Candidate:
    name = f"{SELF}:{_slug(path)}"
    return Candidate(name, Kind.SELF, None, path.name, path, read_bytes=path.stat().st_size)


def _slug(path: Path) -> str:
    """Name of the recipe of a self-drafter's file."""
    return path.stem.partition("-")[2].rpartition("-")[0]
