"""What a bench found, to be sent to others: figures of a machine, and nothing of its user.

It holds no text, and no names of files, folders, users or hosts. docs/reference/json.md tells what
each figure means.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from app.bench.results import Bench, Run, added
from app.drafting.draft_spec import DraftSpec
from app.drafting.drafter_spec import HEADS, DrafterSpec, NodeKind
from backends.base import ModelInfo
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


def _public(node: DrafterSpec) -> str:
    if node.kind is NodeKind.MODEL:
        return (public_model(node.reference) if node.reference else None) or _UNNAMED
    if node.kind in HEADS:
        return node.kind.value
    if node.parts:
        settings = f":{node.settings}" if node.settings else ""
        return f"{node.kind}({','.join(map(_public, node.parts))}){settings}"
    return node.name


SCHEMA = 1
FORMAT = "specchat-report"
_OF_MODEL = (
    *("architecture", "quantization", "parameters", "active_experts", "weight_bytes"),
    *("streamed_bytes_per_token", "engine", "device", "threads", "gpu_layers"),
)


def report(
    specchat: str | None, date: str, machine: dict[str, Any], **measured: Any
) -> dict[str, Any]:
    """A report of a machine; measured: what was with a model, as `measured` returns it."""
    nothing: dict[str, Any] = {"model": None, "passes": {}, "drafts": {}, "series": []}
    about = {"specchat": specchat, "date": date, "machine": machine}
    return {"schema": SCHEMA, "format": FORMAT, **about, **nothing, **measured}


def measured(
    bench: Bench, name: str | None, info: ModelInfo, names: Mapping[str, str]
) -> dict[str, Any]:
    """What a bench found of a model; name: as it was published, None for a file of one's own.

    names: of its methods, where they are not to be told as they are. Methods that then have the
    same name are told apart by no more than their order.
    """
    told = {method: names.get(method, method) for method in bench.methods}
    return {
        "model": {
            "name": name,
            "layers": info.n_layers,
            "rollback": info.rollback.value,
            "bytes_per_token": bench.bytes_per_token,
        }
        | {name: getattr(info, name) for name in _OF_MODEL},
        "passes": bench.cost_seconds,
        "drafts": {
            told[method]: asdict(one) for method, one in bench.drafts.items() if method in told
        },
        "series": [
            {"method": name, "kind": kind, "temperature": temperature, "speedup": speedup}
            | _added(runs)
            for (method, name), temperature, kind in product(
                told.items(), bench.temperatures, bench.kinds
            )
            if (runs := bench.select(method, kind, temperature))
            for speedup in [getattr(bench.speedup(method, kind, temperature), "median", None)]
        ],
    }


def _added(runs: Sequence[Run]) -> dict[str, Any]:
    """Figures of runs, added up; tokens and seconds: after the first token of each reply."""
    sums = ("tokens", "seconds", "steps", "drafted", "accepted")
    return {name: sum(getattr(run, name) for run in runs) for name in sums} | {
        name: added(getattr(run, name) for run in runs) for name in ("drafted_at", "accepted_at")
    }
