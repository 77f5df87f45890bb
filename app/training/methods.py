"""Which method suits a model, and what drafts for it without any training."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.training.plan import Method
from backends.base import UsageError
from backends.engines.backend_selection import LLAMACPP
from backends.engines.model_loading import head_refusal
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from backends.files.gguf_header import parts, read_header
from models import catalogue
from models.catalogue import DrafterKind
from models.metadata.trained_drafters import found_for
from models.reference import Reference, entry_of

_MUCH_SMALLER = 10
"""Times that a model is to be larger than what is distilled from it: else a drafter of the same
family was 10 to 45 % better for it, at too high a cost (arXiv 2310.08461)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A method, and what there is beside it.

    published: a drafter that others trained for the model, with its command; "" for none. instead:
    all that drafts without this training, each with its command.
    """

    method: Method
    published: str
    instead: tuple[str, ...]


def chosen(wanted: Method, target: Reference, backend: str) -> Choice:
    """The method for a model that a backend runs.

    Raises:
        UsageError: the wanted one does not work with this model; the remedy names one that does.
        ModelError: the model's file is damaged.
    """
    found = (one.drafter for one in found_for(target.path, backend))
    has_own = any(one.kind is TrainedKind.NEXT_TOKEN_LAYERS and not one.is_alone for one in found)
    refusal, published = _taps_refusal(target, backend), next(_published(target, backend), "")
    head = Method.HYDRA if refusal else Method.EAGLE3
    what = f"{target.name} cannot be trained for by {wanted}"
    if wanted is Method.EAGLE3 and refusal:
        rather = "--method hydra reads the last state alone, which every model has."
        raise UsageError(what, refusal, rather)
    if wanted is Method.MTP and not has_own:
        raise UsageError(what, "it brings no next-token layers", f"Use --method {head}.")
    suits = Method.MTP if has_own else head
    method = suits if wanted is Method.AUTO else wanted
    return Choice(method, published, tuple(_instead(target, backend, has_own=has_own)))


def _taps_refusal(target: Reference, backend: str) -> str:
    """Why a model's layers cannot be read, in words; "" if they can."""
    if backend != LLAMACPP:
        return ""
    architecture = read_header(parts(target.path)[0]).architecture
    return head_refusal(TrainedDrafter(TrainedKind.EAGLE3), architecture, backend)


def _published(target: Reference, backend: str) -> Iterator[str]:
    for known in catalogue.drafters(entry_of(target)):
        if known.kind.is_trained and known.runs_on(backend) and not known.is_in_model:
            yield f"{known.kind.words}, published for it: --draft {known.alias}"


def _instead(target: Reference, backend: str, *, has_own: bool) -> Iterator[str]:
    if has_own:
        yield "its own next-token layers: --draft mtp; to fine-tune them: --method mtp"
    yield from _published(target, backend)
    entry = entry_of(target)
    for known in catalogue.drafters(entry):
        small, name = catalogue.find(known.model), known.alias
        if known.kind is not DrafterKind.SAME_VOCABULARY or not (entry and small):
            continue
        if entry.parameters >= _MUCH_SMALLER * small.parameters:
            yield f"{name}, a model of its family; to distil it: --method distil --from {name}"
    yield "prompt lookup, which needs no training: --draft lookup"
