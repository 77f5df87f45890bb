"""Models to choose from, with what they take: those on this machine, then the catalogue's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.session_options import DEFAULT_CONTEXT
from backends.base import SpecchatError
from backends.hardware.host import available_memory
from models import catalogue
from models.catalogue import Entry
from models.metadata.memory_bill import Fit, bill, fit
from models.metadata.model_facts import ModelFacts, facts_of, facts_of_entry
from models.reference import Reference, entry_of
from models.stores.available_models import installed
from models.stores.installed_model import Installed


@dataclass(frozen=True, slots=True)
class Offered:
    """A model to choose. fit is None where nothing is known of its memory.

    size_bytes is of its file, exact for an installed one; read_bytes is what a plain token reads.
    """

    name: str
    size_bytes: int | None
    read_bytes: int | None
    fit: Fit | None
    about: str
    """Whose folder it lies in; quantization and licence of one that is not here."""
    path: Path | None = None

    @property
    def is_installed(self) -> bool:
        """Whether it is on this machine."""
        return self.path is not None


def offered(folder: Path, free: int | None = None) -> list[Offered]:
    """Every model that can be run or downloaded; free is bytes of memory, by default this one's."""
    room = available_memory() if free is None else free
    found = installed(folder)
    present = [entry_of(Reference(model.name, model.path)) for model in found]
    return [*_here(found, room), *_on_hub(present, room)]


def _here(found: Sequence[Installed], room: int) -> Iterator[Offered]:
    for model in found:
        facts = facts_for_bill(model.path)
        size = model.size_bytes
        about = model.origin.value
        yield Offered(model.name, size, size, fit_here(facts, room), about, model.path)


def _on_hub(present: Sequence[Entry | None], room: int) -> Iterator[Offered]:
    for entry in catalogue.entries():
        if not entry.chats or entry in present:
            continue
        size = entry.size(entry.default_quantization)
        count = size.bytes if size else None
        read = round(count * entry.active / entry.parameters) if count else None
        facts = facts_of_entry(entry, entry.default_quantization)
        yield Offered(entry.name, count, read, fit_here(facts, room), _licence(entry))


def _licence(entry: Entry) -> str:
    gated = ", asks you to accept its licence" if entry.is_gated else ""
    return f"{entry.default_quantization}, {entry.licence}{gated}"


def facts_for_bill(path: Path) -> ModelFacts | None:
    """What a model's memory bill needs to know, None where its file is damaged."""
    try:
        return facts_of(path)
    except SpecchatError:
        return None


def fit_here(facts: ModelFacts | None, room: int | None = None) -> Fit | None:
    """Whether a model fits into room bytes, by default those free here; None where unknown."""
    if facts is None:
        return None
    n_ctx = min(facts.context_limit or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    return fit(bill(facts, n_ctx).total, available_memory() if room is None else room)
