"""What the engine does and what it has loaded, as pictures any thread may look at."""

from dataclasses import dataclass
from enum import StrEnum

from app.session import Session
from backends.base import ModelInfo, SpecchatError
from models.reference import Reference

_ENGINES = {"llamacpp": "llama.cpp", "mlx": "MLX"}


def where_it_runs(info: ModelInfo) -> str:
    """The engine and the device of a model, as the screen names them."""
    engine, device = _ENGINES[info.backend], info.device.partition(":")[0]
    if info.backend == "mlx" or device.startswith("GPU"):
        return f"{engine} {device}"
    threads = "1 thread" if info.threads == 1 else f"{info.threads} threads"
    return f"{engine} {device}, {threads}"


class Phase(StrEnum):
    """What the engine does."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What runs where."""

    reference: Reference
    info: ModelInfo
    context_size: int
    drafters: tuple[str, ...]
    missing: str
    """Drafters that were asked for and cannot be had, and why."""
    notes: tuple[str, ...]
    load_seconds: float
    bandwidth: float | None
    """Bytes per second of the device's memory, None where it was not measured."""

    @classmethod
    def of(cls, session: Session) -> "Loaded":
        """What a session holds."""
        drafting = session.drafting
        return cls(
            session.reference,
            session.model.info,
            session.context.n_ctx,
            tuple(drafting.names),
            drafting.missing,
            (*session.notes, *drafting.notes),
            session.load_seconds,
            session.bandwidth.bytes_per_second if session.bandwidth else None,
        )

    @property
    def name(self) -> str:
        """What the user calls the model."""
        return self.reference.name


@dataclass(frozen=True, slots=True)
class Status:
    """A picture of the engine; replaced, never changed."""

    phase: Phase
    text: str = ""
    loaded: Loaded | None = None
    error: SpecchatError | None = None
