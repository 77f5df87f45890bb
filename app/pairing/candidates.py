"""Lists all drafters that could draft for a target, without running them."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from app.drafting import self_drafter, self_speculation
from app.drafting.drafter_engine import drafter_backend
from app.drafting.drafter_id import Composition
from app.drafting.spec.drafter_node import (
    JACOBI,
    LOOKAHEAD,
    LOOKUP,
    NGRAM,
    RETRIEVAL,
    SELF,
    NodeKind,
)
from app.drafting.vocabulary_translation import VocabularyTranslation
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.tuned_recipe import tuned
from app.loading.fetch_model import facts_before
from app.loading.proven_models import ProvenModels
from app.pairing.candidate import Candidate, Kind, Target
from app.pairing.trained_candidates import of_file, trained
from app.paths import Paths
from app.settings.learning import may_index
from backends.base import (
    DraftUnavailableError,
    ModelError,
    Rollback,
    Vocabulary,
)
from backends.engines.backend_selection import forms
from backends.engines.model_loading import derives
from models import catalogue
from models.catalogue import CatalogueDrafter, DrafterKind
from models.metadata.model_facts import facts_of
from models.metadata.model_files import stored_bytes
from models.metadata.trained_drafters import drafter_alone
from models.metadata.vocabulary_match import require_same_vocabulary
from models.reference import Reference, entry_of, resolve
from models.self_draft.self_draft_store import SelfDrafts
from models.stores.available_models import installed
from models.tuning.recipe_gain import prospect

_COMPOSED = {
    Composition(
        NodeKind.CASCADE, (LOOKUP,)
    ): "prompt lookup drafts for the self-drafter, which drafts for the model",
    Composition(NodeKind.VOTE, (LOOKUP,)): "prompt lookup and the self-drafter vote on each token",
    Composition(NodeKind.TREE): "the self-drafter drafts a tree",
    Composition(NodeKind.PATHS): "the self-drafter drafts several lines, one of which is judged",
}


def candidates(
    target: Target, models: ProvenModels, memory: AcceptanceMemory | None
) -> Iterator[Candidate]:
    """All candidates, with the vocabularies of installed ones compared."""
    for candidate in listed(target, models.paths, memory):
        is_unread = candidate.is_compatible is None and candidate.path is not None
        yield compared(candidate, target, models) if is_unread else candidate


def listed(target: Target, paths: Paths, memory: AcceptanceMemory | None) -> Iterator[Candidate]:
    """All candidates, without reading files of drafters; whether a vocabulary fits is then unknown.

    A file listed twice is named by the catalogue's entry for this target.
    """
    yield Candidate(LOOKUP, Kind.LOOKUP, True, "repeats earlier text of the conversation")
    yield _retrieval(paths)
    yield Candidate(NGRAM, Kind.NGRAM, True, "n-grams learned from the model's replies")
    yield from _guesses(target)
    mine = own(target, paths)
    yield mine
    if not mine.doubt:
        yield from _composed(mine, target)
    heads = list(trained(target, paths))
    yield from heads
    known = [target.path, mine.path, *(head.path for head in heads)]
    seen = [path.resolve() for path in known if path]
    for candidate in unopened(target, paths, memory):
        if candidate.path is None:
            yield candidate
        elif candidate.path.resolve() not in seen:
            seen.append(candidate.path.resolve())
            yield candidate


def unopened(target: Target, paths: Paths, memory: AcceptanceMemory | None) -> Iterator[Candidate]:
    """Candidate models by name, path and size alone; some occur twice.

    First those of the target's family in the catalogue, installed or not, then smaller installed
    ones, then those that drafted for it before.
    """
    for drafter in catalogue.drafters(entry_of(target.reference)):
        if not drafter.kind.is_trained:
            yield _of_catalogue(drafter, target, paths)
    for model in installed(paths.models):
        if target.facts and model.size_bytes < target.facts.weight_bytes:
            yield _unopened(model.name, model.path)
    for known in memory.known_drafters() if memory else ():
        kind = Kind.SELF if known.path.is_relative_to(paths.self_drafts) else None
        yield _unopened(known.name, known.path, kind)


def _retrieval(paths: Paths) -> Candidate:
    if not may_index(paths):
        return Candidate(RETRIEVAL, Kind.RETRIEVAL, False, "switched off in the settings")
    return Candidate(RETRIEVAL, Kind.RETRIEVAL, True, "repeats text of earlier chats")


def _guesses(target: Target) -> Iterator[Candidate]:
    """Drafters that use the target's own passes."""
    yield Candidate(JACOBI, Kind.GUESSES, True, "guesses of the last pass are drafted in the next")
    tree = self_speculation.tree_size()
    if target.tree_refusal:
        why = f"{target.reference.name} {target.tree_refusal}"
        yield Candidate(LOOKAHEAD, Kind.GUESSES, False, why, tree=tree)
    else:
        why = f"every pass takes up to {tree.nodes} guesses along"
        yield Candidate(LOOKAHEAD, Kind.GUESSES, True, why, tree=tree)


def _composed(own: Candidate, target: Target) -> Iterator[Candidate]:
    """An example of each drafter that is made of others, with the self-drafter as own."""
    for composition, words in _COMPOSED.items():
        candidate = replace(
            own,
            name=composition.of(SELF),
            kind=Kind.COMPOSED,
            why=words,
            read_bytes=None,
            tuned=None,
            composition=composition,
        )
        if not own.is_compatible:
            candidate = replace(candidate, why=f"{SELF}: {own.why}")
        elif target.tree_refusal and composition.kind is NodeKind.TREE:
            why = f"{target.reference.name} {target.tree_refusal}"
            candidate = replace(candidate, is_compatible=False, why=why)
        yield candidate


def own(target: Target, paths: Paths) -> Candidate:
    """The self-drafter: the recipe chosen by tuning, else the most promising one."""
    if target.model is None or target.facts is None:
        return Candidate(
            SELF, Kind.SELF, True, "the model in fewer bits; made once it is installed"
        )
    info = target.model.info
    chosen = tuned(info, paths)
    if chosen is not None:
        words = f"the model itself in {chosen.recipe.text}, as tuning found"
        candidate = Candidate(SELF, Kind.SELF, True, words, tuned=chosen, recipe=chosen.recipe)
    else:
        best = prospect(info)
        doubt = self_drafter.doubt(info, best)
        words = f"the model itself in {best.recipe.text}"
        candidate = Candidate(
            SELF, Kind.SELF, True, words, recipe=best.recipe, prior=best.acceptance, doubt=doubt
        )
    return _with_file(candidate, target, paths)


def _with_file(candidate: Candidate, target: Target, paths: Paths) -> Candidate:
    """A self-drafter with its memory, and its file if it was made before."""
    model, recipe = target.model, candidate.recipe
    assert model is not None
    assert recipe is not None
    info = model.info
    path, variant, when = info.path, recipe.slug, "when it is used"
    if not derives(info):
        try:
            made = SelfDrafts(paths.self_drafts).made(info, recipe)
        except OSError as error:
            why = f"it cannot be saved: {error.strerror or error}"
            return replace(candidate, is_compatible=False, why=why)
        if made is not None:
            return replace(
                _described(replace(candidate, path=made), target), variant=recipe.variant
            )
        path, variant, when = None, "", "at its first use"
    try:
        facts, read = self_drafter.facts(info, recipe), self_drafter.read_bytes(info, recipe)
    except ModelError as error:
        return replace(candidate, is_compatible=False, why=error.what)
    return replace(
        candidate,
        why=f"{candidate.why}, made {when}",
        path=path,
        facts=facts,
        read_bytes=read,
        variant=variant,
    )


def _of_catalogue(drafter: CatalogueDrafter, target: Target, paths: Paths) -> Candidate:
    same = drafter.kind is DrafterKind.SAME_VOCABULARY
    kind = Kind.SAME_VOCABULARY if same else Kind.ACROSS_VOCABULARIES
    model = resolve(drafter.model, paths.models, forms=forms(target.backend))
    if isinstance(model, Reference):
        return _unopened(drafter.alias, model.path, kind)
    facts, read = facts_before(model), None
    if facts and model.entry:
        read = round(facts.weight_bytes * model.entry.active / model.entry.parameters)
    why = f"{model.name} of the catalogue, downloaded at its first use"
    return Candidate(drafter.alias, kind, True, why, None, facts, read)


def _unopened(name: str, path: Path, kind: Kind | None = None) -> Candidate:
    """A model whose file was not read; assumes that it reads all of its weights per token."""
    with contextlib.suppress(OSError):
        return Candidate(name, kind, None, path.name, path, read_bytes=stored_bytes(path))
    return Candidate(name, kind, False, f"{path} cannot be read", path)


def compared(candidate: Candidate, target: Target, models: ProvenModels) -> Candidate:
    """An installed model with its facts, its vocabulary compared with the target's."""
    candidate = _described(candidate, target)
    if candidate.is_compatible is False or candidate.path is None:
        return candidate
    try:
        with models.vocabulary(candidate.path) as drafter:
            return _compared(candidate, drafter, target)
    except ModelError as error:
        return replace(candidate, is_compatible=False, why=error.summary)


def _described(candidate: Candidate, target: Target) -> Candidate:
    """An installed model with the facts of its headers."""
    path = candidate.path
    assert path is not None
    try:
        head = drafter_alone(path)
        if head is not None:
            return of_file(path, head, target, candidate.name)
        facts = facts_of(path, drafter_backend(path, target.backend))
    except ModelError as error:
        return replace(candidate, is_compatible=False, why=error.summary)
    return replace(candidate, facts=facts, read_bytes=facts.read_bytes or facts.weight_bytes)


def _compared(candidate: Candidate, drafter: Vocabulary, target: Target) -> Candidate:
    if drafter.rollback is Rollback.NONE:
        why = "it keeps a running state, which cannot be rolled back"
        return replace(candidate, is_compatible=False, why=why)
    if candidate.kind is Kind.SELF:
        return replace(candidate, is_compatible=True)
    candidate = replace(candidate, kind=None)
    if target.model is None:
        return replace(candidate, why="vocabularies are compared once the model is installed")
    ours = target.model.tokenizer
    try:
        require_same_vocabulary(ours, drafter.tokenizer, candidate.name)
    except DraftUnavailableError as mismatch:
        translation = VocabularyTranslation.of(ours, drafter.tokenizer)
        if translation is None:
            return replace(
                candidate, is_compatible=False, why=f"{mismatch.why}; it cannot represent text"
            )
        share, kind = translation.shared.share, Kind.ACROSS_VOCABULARIES
        return replace(
            candidate, kind=kind, is_compatible=True, why=translation.words, shared=share
        )
    why = "the same tokens as the model"
    return replace(candidate, kind=Kind.SAME_VOCABULARY, is_compatible=True, why=why, shared=1.0)


def undraftable(why: str, drafters: Sequence[Candidate]) -> list[Candidate]:
    """Candidates marked as incompatible, for a target that cannot verify drafts."""
    return [replace(candidate, is_compatible=False, why=why) for candidate in drafters]
