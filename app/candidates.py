"""Finds whatever could draft for a target, by names and files, before anything of it is run."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from app import guessing, self_drafter
from app.acceptance_memory import AcceptanceMemory
from app.candidate import Candidate, Kind, Target
from app.draft_link import JACOBI, LOOKAHEAD, LOOKUP, NGRAM, RETRIEVAL, SELF, LinkKind
from app.drafter_engine import drafter_backend
from app.obtaining import facts_before
from app.paths import Paths
from app.settings.learning import may_index
from app.translation import Translation
from app.tuned_recipe import tuned
from backends.base import (
    DraftUnavailableError,
    ModelError,
    ModelInfo,
    Rollback,
    Vocabulary,
)
from backends.choice import forms, vocabulary
from backends.derivation import derives
from backends.gguf_header import parts, read_header, read_per_token
from models import catalogue
from models.catalogue import CatalogueDrafter, DrafterKind
from models.installed import installed
from models.model_facts import facts_of
from models.recipe import Recipe
from models.reference import Reference, entry_of, resolve
from models.self_draft import SelfDrafts
from models.vocabulary import require_same_vocabulary

_COMPOSED = {
    "cascade(lookup,self)": "prompt lookup drafts for the self-drafter, which drafts for the model",
    "vote(lookup,self)": "prompt lookup and the self-drafter vote on each token",
    "tree(self)": "the self-drafter drafts a tree",
    "paths(self)": "the self-drafter drafts several lines, one of which is judged",
}


def candidates(
    target: Target, paths: Paths, memory: AcceptanceMemory | None
) -> Iterator[Candidate]:
    """Each file once: as the catalogue names it for this target, else as it was found."""
    yield Candidate(LOOKUP, Kind.LOOKUP, True, "repeats what the text said before")
    yield _retrieval(paths)
    yield Candidate(NGRAM, Kind.NGRAM, True, "says what the model mostly says")
    yield from _guesses(target)
    own = _self(target, paths)
    yield own
    yield from _composed(own, target)
    seen = [path for path in (target.path, own.path) if path]
    for found in _models(target, paths, memory):
        if found.path is None or found.path.resolve() not in map(Path.resolve, seen):
            seen += [found.path] if found.path else []
            yield found


def _retrieval(paths: Paths) -> Candidate:
    if not may_index(paths):
        return Candidate(RETRIEVAL, Kind.RETRIEVAL, False, "switched off in the settings")
    return Candidate(RETRIEVAL, Kind.RETRIEVAL, True, "repeats what was said there")


def _guesses(target: Target) -> Iterator[Candidate]:
    """The model's own, beside its passes."""
    yield Candidate(JACOBI, Kind.GUESSES, True, "guesses of the last pass are drafted in the next")
    tree = guessing.tree_size()
    if target.tree_refusal:
        why = f"{target.reference.name} {target.tree_refusal}"
        yield Candidate(LOOKAHEAD, Kind.GUESSES, False, why, tree=tree)
    else:
        why = f"every pass takes up to {tree.nodes} guesses along"
        yield Candidate(LOOKAHEAD, Kind.GUESSES, True, why, tree=tree)


def _composed(own: Candidate, target: Target) -> Iterator[Candidate]:
    """An example of each drafter that is made of others, with the self-drafter as own."""
    for name, words in _COMPOSED.items():
        one = replace(own, name=name, kind=Kind.COMPOSED, why=words, read_bytes=None, tuned=None)
        if not own.is_compatible:
            one = replace(one, why=f"{SELF}: {own.why}")
        elif target.tree_refusal and name.startswith(LinkKind.TREE):
            why = f"{target.reference.name} {target.tree_refusal}"
            one = replace(one, is_compatible=False, why=why)
        yield one


def _models(target: Target, paths: Paths, memory: AcceptanceMemory | None) -> Iterator[Candidate]:
    for drafter in catalogue.drafters(entry_of(target.reference)):
        yield _of_catalogue(drafter, target, paths)
    for model in installed(paths.models):
        if target.facts and model.size_bytes < target.facts.weight_bytes:
            yield _of_file(model.name, model.path, target)
    for known in memory.known_drafters() if memory else ():
        own = known.path.is_relative_to(paths.self_drafts)
        yield _of_file(known.name, known.path, target, is_own=own)


def _self(target: Target, paths: Paths) -> Candidate:
    if target.model is None or target.facts is None:
        return Candidate(SELF, Kind.SELF, True, "the model in fewer bits; made when it is here")
    info = target.model.info
    found = tuned(info, paths)
    recipe = found.recipe if found else Recipe.default(info)
    words = f"the model itself in {recipe.text}"
    words += ", as tuning found" if found else ""
    if derives(info):
        return replace(_of_loaded(info, recipe, words), tuned=found)
    try:
        path = SelfDrafts(paths.self_drafts).made(info, recipe)
    except OSError as error:
        return Candidate(SELF, Kind.SELF, False, f"it cannot be kept: {error.strerror or error}")
    if path is not None:
        own = _of_file(SELF, path, target, is_own=True)
        return replace(own, why=words, variant=recipe.variant, tuned=found)
    facts = replace(target.facts, weight_bytes=self_drafter.added_bytes(info, recipe))
    read = self_drafter.read_bytes(info, recipe)
    words += ", made at its first use"
    return Candidate(SELF, Kind.SELF, True, words, None, facts, read, tuned=found)


def _of_loaded(info: ModelInfo, recipe: Recipe, words: str) -> Candidate:
    """The self-drafter that is made of loaded weights, each time anew."""
    return Candidate(
        SELF,
        Kind.SELF,
        True,
        f"{words}, made when it is used",
        info.path,
        self_drafter.facts(info, recipe),
        self_drafter.read_bytes(info, recipe),
        variant=recipe.slug,
    )


def _of_catalogue(drafter: CatalogueDrafter, target: Target, paths: Paths) -> Candidate:
    if drafter.kind is DrafterKind.NEXT_TOKEN_LAYERS:
        why = "next-token layers are not run by this version"
        return Candidate(drafter.alias, Kind.NEXT_TOKEN_LAYERS, False, why)
    found = resolve(drafter.model, paths.models, forms=forms(target.backend))
    if isinstance(found, Reference):
        return _of_file(drafter.alias, found.path, target)
    facts, read = facts_before(found), None
    if facts and found.entry:
        read = round(facts.weight_bytes * found.entry.active / found.entry.parameters)
    same = drafter.kind is DrafterKind.SAME_VOCABULARY
    kind = Kind.SAME_VOCABULARY if same else Kind.ACROSS_VOCABULARIES
    why = f"{found.name} of the catalogue, downloaded at its first use"
    return Candidate(drafter.alias, kind, True, why, None, facts, read)


def _of_file(name: str, path: Path, target: Target, *, is_own: bool = False) -> Candidate:
    found = Candidate(name, Kind.SELF if is_own else None, None, path.name, path)
    try:
        headers = [read_header(part) for part in parts(path)] if path.is_file() else []
        tensors = [tensor for header in headers for tensor in header.tensors]
        facts = facts_of(path, drafter_backend(path, target.backend))
        read = read_per_token(headers[0], tensors) if headers else facts.weight_bytes
        found = replace(found, facts=facts, read_bytes=read)
        with vocabulary(path) as drafter:
            return _compared(found, drafter, target)
    except ModelError as error:
        why = f"{error.what}: {error.why}" if error.why else error.what
        return replace(found, is_compatible=False, why=why)


def _compared(found: Candidate, drafter: Vocabulary, target: Target) -> Candidate:
    if drafter.rollback is not Rollback.ANY:
        why = "it keeps a running state, which cannot be rolled back"
        return replace(found, is_compatible=False, why=why)
    if found.kind is Kind.SELF:
        return replace(found, is_compatible=True)
    if target.model is None:
        return replace(found, why="vocabularies are compared once the model is here")
    ours = target.model.tokenizer
    try:
        require_same_vocabulary(ours, drafter.tokenizer, found.name)
    except DraftUnavailableError as mismatch:
        translation = Translation.of(ours, drafter.tokenizer)
        if translation is None:
            return replace(found, is_compatible=False, why=f"{mismatch.why}; it cannot read text")
        share, kind = translation.shared.share, Kind.ACROSS_VOCABULARIES
        return replace(found, kind=kind, is_compatible=True, why=translation.words, shared=share)
    why = "the same tokens as the model"
    return replace(found, kind=Kind.SAME_VOCABULARY, is_compatible=True, why=why, shared=1.0)


def undraftable(why: str, found: Sequence[Candidate]) -> list[Candidate]:
    """The same for a target that cannot be drafted for."""
    return [replace(one, is_compatible=False, why=why) for one in found]
