"""Installed models and those of the catalogue, with their size and whether they fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.loading.session_options import DEFAULT_CONTEXT
from backends.base import SpecchatError
from backends.hardware.host import available_memory
from models import catalogue
from models.catalogue import Entry
from models.metadata.memory_bill import Fit, bill, fit
from models.metadata.model_facts import ModelFacts, facts_of, facts_of_entry
from models.reference import Reference, entry_of
from models.stores.available_models import installed
from models.stores.installed_model import Installed

_RECOMMENDED_SHARE = 0.25
"""Of all memory: leaves room for a context, a drafter and other programs."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A model to choose.

    size_bytes: of its file, exact for an installed one. read_bytes: read by each plain token.
    fit: None where its memory is unknown.
    """

    name: str
    size_bytes: int | None
    read_bytes: int | None
    fit: Fit | None
    about: str
    """The origin of an installed model; else quantization and licence."""
    path: Path | None = None

    @property
    def is_installed(self) -> bool:
        """Whether the model is on this machine."""
        return self.path is not None


def offered(folder: Path, free: int | None = None) -> list[Offered]:
    """List every model that can be run or downloaded.

    free: bytes of memory, by default those free on this machine.
    """
    room = available_memory() if free is None else free
    local = installed(folder)
    present = [entry_of(Reference(model.name, model.path)) for model in local]
    return [*_installed(local, room), *_downloadable(present, room)]


def recommended(memory: int) -> Entry | None:
    """The largest chat model that takes up to a quarter of the memory and needs no login."""
    chat_models = (entry for entry in catalogue.entries() if entry.chats and not entry.is_gated)
    sized = ((size, entry) for entry in chat_models if (size := _file_size(entry)))
    fitting = [pair for pair in sized if pair[0] <= _RECOMMENDED_SHARE * memory]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _installed(local: Sequence[Installed], room: int) -> Iterator[Offered]:
    for model in local:
        facts = facts_for_bill(model.path)
        size = model.size_bytes
        about = model.origin.value
        yield Offered(model.name, size, size, fit_here(facts, room), about, model.path)


def _downloadable(present: Sequence[Entry | None], room: int) -> Iterator[Offered]:
    for entry in catalogue.entries():
        if not entry.chats or entry in present:
            continue
        count = _file_size(entry)
        read = round(count * entry.active / entry.parameters) if count else None
        facts = facts_of_entry(entry, entry.default_quantization)
        yield Offered(entry.name, count, read, fit_here(facts, room), _licence(entry))


def _file_size(entry: Entry) -> int | None:
    size = entry.size(entry.default_quantization)
    return size.bytes if size else None


def _licence(entry: Entry) -> str:
    gated = ", asks you to accept its licence" if entry.is_gated else ""
    return f"{entry.default_quantization}, {entry.licence}{gated}"


def facts_for_bill(path: Path) -> ModelFacts | None:
    """Figures for the memory bill of a model, None if its file is damaged."""
    try:
        return facts_of(path)
    except SpecchatError:
        return None


def fit_here(facts: ModelFacts | None, room: int | None = None) -> Fit | None:
    """Whether a model fits into room bytes, by default those free on this machine."""
    if facts is None:
        return None
    n_ctx = min(facts.context_limit or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    return fit(bill(facts, n_ctx).total, available_memory() if room is None else room)
