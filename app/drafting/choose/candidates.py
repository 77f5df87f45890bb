"""Lists all drafters that could draft for a target, without running them."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from app.drafting import self_drafter
from app.drafting.choose.drafter_info import DrafterInfo, Kind, Target
from app.drafting.draft_spec import head_of_catalogue, why_not
from app.drafting.drafter_model import VocabularyTranslation
from app.drafting.drafter_spec import (
    HEADS,
    JACOBI,
    LOOKAHEAD,
    LOOKUP,
    NGRAM,
    RETRIEVAL,
    SELF,
    Composition,
    NodeKind,
)
from app.drafting.model_source import drafter_backend
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.registered import DISTILLED, found_here, registered
from app.learned.tuned_recipe import tuned
from app.loading.checked_loader import CheckedLoader
from app.loading.select import facts_before
from app.paths import Paths
from app.settings.in_effect import is_on
from backends.base import DraftUnavailableError, ModelError, Rollback, Vocabulary
from backends.engines.backend_selection import LLAMACPP, MLX, Form, forms
from backends.engines.model_loading import derives, head_refusal, refuse_unread_head
from backends.files.gguf_drafter import TrainedDrafter
from decoding.estimation.acceptance import TRAINED_PRIOR
from models import catalogue
from models.catalogue import CatalogueDrafter, DrafterKind, Entry
from models.metadata.identity import require_same_vocabulary, stored_bytes
from models.metadata.memory_bill import facts_of
from models.metadata.trained_drafters import (
    drafter_alone,
    drafter_of,
    found_for,
    head_facts,
    misfit,
)
from models.reference import HubReference, Reference, entry_of, resolve
from models.self_draft.self_draft_store import SelfDrafts
from models.stores.available_models import installed
from models.tuning.recipe_search import prospect


def trained(target: Target, paths: Paths) -> Iterator[DrafterInfo]:
    """Trained drafters of a target by headers, those at hand first; nothing is run.

    Each is named as --draft would find it: the first of a kind by its word.
    """
    entry = entry_of(target.reference)
    words: set[str] = set()
    model = target.model
    for found in found_for(model.info.path, model.info.backend) if model else ():
        path = found.path
        candidate = of_file(path, found.drafter, target, path.name)
        word = found.drafter.kind.word
        if candidate.is_compatible:
            name = word if word not in words else f"{word}:{path}"
            words.add(word)
            candidate = replace(candidate, name=name, why=_published(candidate.why, word, entry))
        yield candidate
    for mine, found in found_here(paths, model.info.path, model.info.backend) if model else ():
        word, what = found.drafter.kind.word, f"{found.drafter.kind}, {mine.words}"
        candidate = of_file(found.path, found.drafter, target, mine.name, what)
        if found.misfit:
            candidate = candidate.refused(f"{what}: {found.misfit}")
        if candidate.is_compatible:
            prior = mine.prior or candidate.prior
            candidate = replace(candidate, prior=prior, name=mine.name if word in words else word)
            words.add(word)
        yield candidate
    for word in HEADS:
        known = catalogue.drafter(word, entry) if entry and word not in words else None
        if known is not None:
            yield _named_by_catalogue(known, word, target, paths, entry)


def of_file(
    path: Path, drafter: TrainedDrafter, target: Target, name: str, where: str = ""
) -> DrafterInfo:
    """The candidate of a head in a file of this machine, compared with the target by headers."""
    beside = f"{drafter.kind} beside the model" if drafter.is_alone else "in the model's own file"
    where = where or beside
    candidate = DrafterInfo(name, Kind.TRAINED, False, where, path)
    if target.path is None or target.model is None:
        return replace(candidate, why=f"{where}; compared once the model is installed")
    info = target.model.info
    try:
        refuse_unread_head(path, info.backend)
        refusal = misfit(drafter, target.path, info.backend)
        refusal = refusal or head_refusal(drafter, info.architecture, info.backend)
        if not drafter.is_alone and info.streamed_bytes_per_token:
            refusal = refusal or "they are left out of a model that streams"
        if refusal:
            return replace(candidate, why=f"{where}: {refusal}")
        facts = head_facts(path, target.path)
    except ModelError as error:
        return replace(candidate, why=f"{where}: {error.summary}")
    return replace(
        candidate,
        is_compatible=True,
        facts=facts,
        read_bytes=drafter.draw_bytes,
        variant=drafter.kind.variant,
        prior=TRAINED_PRIOR,
        longest=drafter.longest,
    )


def _named_by_catalogue(
    known: CatalogueDrafter, word: NodeKind, target: Target, paths: Paths, entry: Entry | None
) -> DrafterInfo:
    candidate = DrafterInfo(known.alias, Kind.TRAINED, False, known.kind.words)
    backend = _backend(target)
    is_inside = backend == LLAMACPP and known.is_in_model
    refusal = why_not(known, backend)
    if not refusal and target.model and is_inside:
        refusal = "this file of the model was made without them"
    if refusal:
        return replace(candidate, why=_published(f"{known.kind.words}: {refusal}", word, entry))
    reference = head_of_catalogue(HEADS[word], entry, paths.models, backend)
    if isinstance(reference, Reference):
        try:
            drafter = drafter_of(reference.path)
        except ModelError as error:
            return replace(candidate, why=f"{known.kind.words}: {error.summary}")
        if drafter is None:
            why = f"{reference.path.name} brings nothing that drafts"
            return replace(candidate, why=f"{known.kind.words}: {why}")
        return of_file(reference.path, drafter, target, known.alias)
    place = reference.name if isinstance(reference, HubReference) else "the model's own file"
    is_inside = known.is_in_model and not isinstance(reference, HubReference)
    how = f"in {place}" if is_inside else f"{place}, downloaded at its first use"
    words = _published(f"{known.kind.words}: {how}", word, entry)
    return replace(candidate, is_compatible=True, why=words, prior=TRAINED_PRIOR)


def _backend(target: Target) -> str:
    if target.model is not None:
        return target.model.info.backend
    reference = target.reference
    is_for_mlx = isinstance(reference, HubReference) and reference.form is Form.MLX
    return MLX if is_for_mlx or target.backend == MLX else LLAMACPP


def _published(why: str, word: str, entry: Entry | None) -> str:
    """With what others measured, if the catalogue knows."""
    known = catalogue.drafter(word, entry) if entry else None
    return f"{why}; published: {known.published}" if known and known.published else why


_COMPOSED = {
    Composition(
        NodeKind.CASCADE, (LOOKUP,)
    ): "prompt lookup drafts for the self-drafter, which drafts for the model",
    Composition(NodeKind.VOTE, (LOOKUP,)): "prompt lookup and the self-drafter vote on each token",
    Composition(NodeKind.TREE): "the self-drafter drafts a tree",
    Composition(NodeKind.PATHS): "the self-drafter drafts several lines, one of which is judged",
}


def candidates(
    target: Target, models: CheckedLoader, memory: AcceptanceMemory | None
) -> Iterator[DrafterInfo]:
    """All candidates, with the vocabularies of installed ones compared."""
    for candidate in listed(target, models.paths, memory):
        is_unread = candidate.is_compatible is None and candidate.path is not None
        yield compared(candidate, target, models) if is_unread else candidate


def listed(target: Target, paths: Paths, memory: AcceptanceMemory | None) -> Iterator[DrafterInfo]:
    """All candidates, without reading files of drafters; whether a vocabulary fits is then unknown.

    A file listed twice is named by the catalogue's entry for this target.
    """
    yield DrafterInfo(LOOKUP, Kind.LOOKUP, True, "repeats earlier text of the conversation")
    retrieval = DrafterInfo(RETRIEVAL, Kind.RETRIEVAL, True, "repeats text of earlier chats")
    may_index = is_on("retrieval", paths)
    yield retrieval if may_index else retrieval.refused("switched off in the settings")
    yield DrafterInfo(NGRAM, Kind.NGRAM, True, "n-grams learned from the model's answers")
    yield from _guesses(target)
    mine = own(target, paths)
    yield mine
    if not mine.doubt:
        yield from _composed(mine, target)
    heads = list(trained(target, paths))
    yield from heads
    others = unopened(target, paths, memory)
    yield from unseen(others, [target.path, mine.path, *(head.path for head in heads)])


def unseen(drafters: Iterable[DrafterInfo], known: Iterable[Path | None]) -> Iterator[DrafterInfo]:
    """The drafters without those of known files and of files that occur twice."""
    seen = {path.resolve() for path in known if path}
    for drafter in drafters:
        path = drafter.path.resolve() if drafter.path else None
        if path is None or path not in seen:
            seen |= {path} if path else set()
            yield drafter


def unopened(
    target: Target, paths: Paths, memory: AcceptanceMemory | None
) -> Iterator[DrafterInfo]:
    """Drafter models by name, path and size alone; some occur twice.

    First those of the target's family in the catalogue, installed or not, then smaller installed
    ones, then those that drafted for it before.
    """
    for drafter in catalogue.drafters(entry_of(target.reference)):
        if not drafter.kind.is_trained:
            yield _of_catalogue(drafter, target, paths)
    for model in installed(paths.models):
        if target.facts and model.size_bytes < target.facts.weight_bytes:
            yield _unopened(model.name, model.path)
    for one in registered(paths):
        if target.path and one.method == DISTILLED and not one.refusal(target.path, one.engine):
            yield _unopened(one.name, one.path)
    for name, path in memory.known_drafters() if memory else ():
        kind = Kind.SELF if path.is_relative_to(paths.self_drafts) else None
        yield _unopened(name, path, kind)


def _guesses(target: Target) -> Iterator[DrafterInfo]:
    why = "guesses of the last pass are drafted in the next"
    yield DrafterInfo(JACOBI, Kind.GUESSES, True, why)
    tree = self_drafter.tree_size()
    why = f"every pass takes up to {tree.nodes} guesses along"
    lookahead = DrafterInfo(LOOKAHEAD, Kind.GUESSES, True, why, tree=tree)
    why = f"{target.reference.name} {target.tree_refusal}"
    yield lookahead.refused(why) if target.tree_refusal else lookahead


def _composed(own: DrafterInfo, target: Target) -> Iterator[DrafterInfo]:
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
            candidate = candidate.refused(f"{target.reference.name} {target.tree_refusal}")
        yield candidate


def own(target: Target, paths: Paths) -> DrafterInfo:
    """The self-drafter: the recipe chosen by tuning, else the most promising one."""
    if target.model is None or target.facts is None:
        why = "the model in fewer bits; made once it is installed"
        return DrafterInfo(SELF, Kind.SELF, True, why)
    info = target.model.info
    chosen = tuned(info, paths)
    if chosen is not None:
        words = f"the model itself in {chosen.recipe.text}, as tuning found"
        candidate = DrafterInfo(SELF, Kind.SELF, True, words, tuned=chosen, recipe=chosen.recipe)
    else:
        best = prospect(info)
        doubt = self_drafter.doubt(info, best)
        words = f"the model itself in {best.recipe.text}"
        candidate = DrafterInfo(
            SELF, Kind.SELF, True, words, recipe=best.recipe, prior=best.acceptance, doubt=doubt
        )
    return _with_file(candidate, target, paths)


def _with_file(candidate: DrafterInfo, target: Target, paths: Paths) -> DrafterInfo:
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
            return candidate.refused(f"it cannot be saved: {error.strerror or error}")
        if made is not None:
            candidate = _described(replace(candidate, path=made), target)
            return replace(candidate, variant=recipe.variant)
        path, variant, when = None, "", "at its first use"
    try:
        facts, read = self_drafter.facts(info, recipe), self_drafter.read_bytes(info, recipe)
    except ModelError as error:
        return candidate.refused(error.what)
    return replace(
        candidate,
        why=f"{candidate.why}, made {when}",
        path=path,
        facts=facts,
        read_bytes=read,
        variant=variant,
    )


def _of_catalogue(drafter: CatalogueDrafter, target: Target, paths: Paths) -> DrafterInfo:
    same = drafter.kind is DrafterKind.SAME_VOCABULARY
    kind = Kind.SAME_VOCABULARY if same else Kind.ACROSS_VOCABULARIES
    model = resolve(drafter.model, paths.models, forms=forms(target.backend))
    if isinstance(model, Reference):
        return _unopened(drafter.alias, model.path, kind)
    facts, read = facts_before(model), None
    if facts and model.entry:
        read = round(facts.weight_bytes * model.entry.active / model.entry.parameters)
    why = f"{model.name} of the catalogue, downloaded at its first use"
    return DrafterInfo(drafter.alias, kind, True, why, None, facts, read)


def _unopened(name: str, path: Path, kind: Kind | None = None) -> DrafterInfo:
    """A model whose file was not read; assumes that it reads all of its weights per token."""
    with contextlib.suppress(OSError):
        return DrafterInfo(name, kind, None, path.name, path, read_bytes=stored_bytes(path))
    return DrafterInfo(name, kind, False, f"{path} cannot be read", path)


def compared(candidate: DrafterInfo, target: Target, models: CheckedLoader) -> DrafterInfo:
    candidate = _described(candidate, target)
    if candidate.is_compatible is False or candidate.path is None:
        return candidate
    try:
        with models.vocabulary(candidate.path) as drafter:
            return _compared(candidate, drafter, target)
    except ModelError as error:
        return candidate.refused(error.summary)


def _described(candidate: DrafterInfo, target: Target) -> DrafterInfo:
    path = candidate.path
    assert path is not None
    try:
        head = drafter_alone(path)
        if head is not None:
            return of_file(path, head, target, candidate.name)
        facts = facts_of(path, drafter_backend(path, target.backend))
    except ModelError as error:
        return candidate.refused(error.summary)
    return replace(candidate, facts=facts, read_bytes=facts.read_bytes or facts.weight_bytes)


def _compared(candidate: DrafterInfo, drafter: Vocabulary, target: Target) -> DrafterInfo:
    if drafter.rollback is Rollback.NONE:
        return candidate.refused("it keeps a running state, which cannot be rolled back")
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
            return candidate.refused(f"{mismatch.why}; it cannot represent text")
        share, kind, why = translation.shared.share, Kind.ACROSS_VOCABULARIES, translation.words
    else:
        share, kind, why = 1.0, Kind.SAME_VOCABULARY, "the same tokens as the model"
    return replace(candidate, kind=kind, is_compatible=True, why=why, shared=share)
