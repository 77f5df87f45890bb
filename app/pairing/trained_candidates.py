"""Drafters trained for a target: in its own file, beside it, or named by the catalogue."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from app.drafting.spec.drafter_node import HEADS, NodeKind
from app.drafting.spec.head_reference import head_of_catalogue, why_not
from app.pairing.candidate import Candidate, Kind, Target
from app.paths import Paths
from backends.base import ModelError
from backends.engines.backend_names import LLAMACPP, MLX
from backends.engines.backend_selection import Form
from backends.engines.head_support import head_refusal, refuse_unread_head
from backends.files.gguf_drafter import TrainedDrafter
from decoding.estimation.acceptance_estimates import TRAINED_PRIOR
from models import catalogue
from models.catalogue import CatalogueDrafter, Entry
from models.metadata.head_facts import head_facts
from models.metadata.trained_drafters import drafter_of, found_for, misfit
from models.reference import HubReference, Reference, entry_of


def trained(target: Target, paths: Paths) -> Iterator[Candidate]:
    """Trained drafters of a target by headers, those at hand first; nothing is run.

    Each is named as --draft would find it: the first of a kind by its word.
    """
    entry = entry_of(target.reference)
    words: set[str] = set()
    for path, drafter in _at_hand(target):
        candidate = of_file(path, drafter, target, path.name)
        word = drafter.kind.word
        if candidate.is_compatible:
            name = word if word not in words else f"{word}:{path}"
            words.add(word)
            candidate = replace(candidate, name=name, why=_published(candidate.why, word, entry))
        yield candidate
    for word in HEADS:
        known = catalogue.drafter(word, entry) if entry and word not in words else None
        if known is not None:
            yield _of_catalogue(known, word, target, paths, entry)


def of_file(path: Path, drafter: TrainedDrafter, target: Target, name: str) -> Candidate:
    """The candidate of a head in a file of this machine, compared with the target by headers."""
    where = f"{drafter.kind} beside the model" if drafter.is_alone else "in the model's own file"
    candidate = Candidate(name, Kind.TRAINED, False, where, path)
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


def _at_hand(target: Target) -> Iterator[tuple[Path, TrainedDrafter]]:
    """What the target brings and what lies beside it."""
    if target.path is not None and target.model is not None:
        for found in found_for(target.path, target.model.info.backend):
            yield found.path, found.drafter


def _of_catalogue(
    known: CatalogueDrafter, word: NodeKind, target: Target, paths: Paths, entry: Entry | None
) -> Candidate:
    """A head that the catalogue names: downloaded before, to download, or of no use here."""
    candidate = Candidate(known.alias, Kind.TRAINED, False, known.kind.words)
    backend = _backend(target)
    if refusal := _refusal(known, target, backend):
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


def _refusal(known: CatalogueDrafter, target: Target, backend: str) -> str:
    """Why a head of the catalogue cannot be used for a target; empty if it may."""
    if refusal := why_not(known, backend):
        return refusal
    is_inside = backend == LLAMACPP and known.is_in_model
    return "this file of the model was made without them" if target.model and is_inside else ""


def _backend(target: Target) -> str:
    """The backend that runs a target, or is expected to."""
    if target.model is not None:
        return target.model.info.backend
    reference = target.reference
    is_for_mlx = isinstance(reference, HubReference) and reference.form is Form.MLX
    return MLX if is_for_mlx or target.backend == MLX else LLAMACPP


def _published(why: str, word: str, entry: Entry | None) -> str:
    """With what others measured, if the catalogue knows."""
    known = catalogue.drafter(word, entry) if entry else None
    return f"{why}; published: {known.published}" if known and known.published else why
