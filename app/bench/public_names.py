"""Names of models and drafters that a report may tell: published ones, never those of files."""

from collections.abc import Sequence

from app.bench.results import ALWAYS
from app.drafting.spec.draft_spec import DraftSpec
from app.drafting.spec.drafter_node import HEADS, DrafterNode, NodeKind
from models.catalogue import Entry
from models.reference import HubReference, Reference, entry_of

_PUBLISHED = "mlx-community/"
_UNNAMED = "model"


def public_model(reference: Reference | HubReference) -> str | None:
    """Name of a model in the catalogue, or its public repository; None for another."""
    entry = entry_of(reference)
    if entry is not None and _is_published(reference, entry):
        return entry.name
    repository = reference.name.partition(":")[0]  # after it is what the user chose of it
    return repository if repository.startswith(_PUBLISHED) else None


def _is_published(reference: Reference | HubReference, entry: Entry) -> bool:
    """Whether a model is an entry's, and not only named like it, as what was made from it is."""
    if not isinstance(reference, Reference) or not reference.path.is_file():
        return True
    files = {entry.file(quantization) for quantization in entry.quantizations}
    return reference.name in entry.names or reference.path.name in files


def public_draft(spec: DraftSpec) -> str:
    """A --draft SPEC without names of files; a model that is not published is "model"."""
    if spec.is_automatic:
        return spec.requested
    return ",".join(map(_public, spec.nodes)) or spec.requested


def public_methods(methods: Sequence[str], given: str, spec: DraftSpec) -> dict[str, str]:
    """Names to tell of a bench's methods, where they differ: of those with the given --draft."""
    public = public_draft(spec)
    drafters = {method: method.rpartition(ALWAYS)[0] for method in methods}
    fixed = (method for method in methods if drafters[method] == given)
    return {given: public} | {method: public + method.removeprefix(given) for method in fixed}


def _public(node: DrafterNode) -> str:
    if node.kind is NodeKind.MODEL:
        return (public_model(node.reference) if node.reference else None) or _UNNAMED
    if node.kind in HEADS:
        return node.kind.value
    if node.parts:
        settings = f":{node.settings}" if node.settings else ""
        return f"{node.kind}({','.join(map(_public, node.parts))}){settings}"
    return node.name
