"""What a bench found, to be sent to others: figures of a machine, and nothing of its user.

It holds no text, and no names of files, folders, users or hosts. docs/reference/json.md describes
it as JSON.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, Self

from app.bench.results import ALWAYS, Bench, DraftSeconds, Run, Speedup, added
from app.drafting.draft_spec import DraftSpec
from app.drafting.drafter_spec import HEADS, DrafterSpec, NodeKind
from backends.base import ModelInfo
from backends.hardware.host import Gpu
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


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: engines by the build that is installed, None for one that does not start."""

    system: str
    processor: str
    physical_cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    engines: dict[str, str | None]
    bandwidth_bytes_per_second: float | None
    bandwidth_source: str | None


@dataclass(frozen=True, slots=True)
class ReportedModel:
    """A model; name: as it was published, None for a file of one's own. Sizes are in bytes."""

    name: str | None
    architecture: str
    quantization: str
    parameters: int
    layers: int
    rollback: str
    active_experts: int
    weight_bytes: int
    bytes_per_token: int
    streamed_bytes_per_token: int
    engine: str
    device: str
    threads: int
    gpu_layers: int | None

    @classmethod
    def of(cls, name: str | None, info: ModelInfo, bytes_per_token: int) -> Self:
        """A loaded model; bytes_per_token: weights and cache that a plain token reads."""
        return cls(
            name, info.architecture, info.quantization, info.parameters, info.n_layers,
            info.rollback.value, info.active_experts, info.weight_bytes, bytes_per_token,
            info.streamed_bytes_per_token, info.engine, info.device, info.threads, info.gpu_layers,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Series:
    """Replies of a method to one kind of prompt at a temperature, added up.

    tokens, seconds: after the first token of each reply. speedup: over plain decoding, the median
    of the rounds; None if either is missing. drafted_at, accepted_at: tokens by their position in a
    draft.
    """

    method: str
    kind: str
    temperature: float
    tokens: int
    seconds: float
    speedup: float | None
    steps: int
    drafted: int
    accepted: int
    drafted_at: tuple[int, ...]
    accepted_at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A machine, and what was measured with one model on it; None if nothing was.

    specchat: its version. passes: seconds of a pass of the model by its number of tokens. drafts:
    seconds of drafting, by method.
    """

    specchat: str | None
    date: str
    machine: Machine
    model: ReportedModel | None = None
    passes: dict[int, float] = field(default_factory=dict[int, float])
    drafts: dict[str, DraftSeconds] = field(default_factory=dict[str, DraftSeconds])
    series: tuple[Series, ...] = ()

    @classmethod
    def of(
        cls,
        specchat: str | None,
        machine: Machine,
        model: ReportedModel,
        bench: Bench,
        names: dict[str, str],
    ) -> Self:
        """The report of a bench; names: of its methods, where they are not to be told as they are.

        Methods that then have the same name are told apart by no more than their order.
        """
        told = {method: names.get(method, method) for method in bench.methods}
        places = product(told.items(), bench.temperatures, bench.kinds)
        return cls(
            specchat,
            bench.date,
            machine,
            model,
            bench.cost_seconds,
            {told[method]: cost for method, cost in bench.drafts.items() if method in told},
            tuple(
                _added(name, kind, temperature, bench.speedup(method, kind, temperature), runs)
                for (method, name), temperature, kind in places
                if (runs := bench.select(method, kind, temperature))
            ),
        )

    def as_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {"schema": SCHEMA, "format": FORMAT, **asdict(self)}


def _added(
    method: str, kind: str, temperature: float, speedup: Speedup | None, runs: list[Run]
) -> Series:
    return Series(
        method=method,
        kind=kind,
        temperature=temperature,
        tokens=sum(run.tokens for run in runs),
        seconds=sum(run.seconds for run in runs),
        speedup=speedup.median if speedup else None,
        steps=sum(run.steps for run in runs),
        drafted=sum(run.drafted for run in runs),
        accepted=sum(run.accepted for run in runs),
        drafted_at=tuple(added(run.drafted_at for run in runs)),
        accepted_at=tuple(added(run.accepted_at for run in runs)),
    )
