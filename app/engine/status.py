"""What the engine tells any thread: frozen snapshots of its state, and errors in words."""

import contextlib
import traceback
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from app.ahead.expected import AheadState
from app.paths import Paths
from app.wording import counted
from backends.base import ModelInfo, SpecchatError
from backends.base.safe_files import make_private_folder, write_whole
from backends.chat.reply_form import offers_thinking
from backends.engines.backend_selection import REMOTE

if TYPE_CHECKING:
    from app.engine.session import Session
    from app.loading.model_list import Reach
    from models.reference import Reference

_ENGINES = {"llamacpp": "llama.cpp", "mlx": "MLX"}


def where_it_runs(info: ModelInfo) -> str:
    if info.host:
        return f"specchat on {info.host}"
    if info.backend == REMOTE:
        return f"{info.engine} at {info.device}"
    engine, device = _ENGINES[info.backend], info.device.partition(":")[0]
    if info.backend == "mlx" or device in ("GPU", "RPC"):
        return f"{engine} {device}"
    return f"{engine} {device}, {counted(info.threads, 'thread')}"


class Phase(StrEnum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Loaded:
    reference: "Reference"
    info: ModelInfo
    context_size: int
    drafters: tuple[str, ...]
    missing: str
    """Requested drafters that are not available, and why."""
    notes: tuple[str, ...]
    load_seconds: float
    bandwidth: float | None
    """Memory bandwidth of the device in bytes per second, None if it was not measured."""
    plain_rate: float | None = None
    """Tokens a second of plain decoding: the best ever measured here."""
    prompt_rate: float | None = None
    """Tokens a second of reading a prompt, from the widest pass that was measured."""
    can_think: bool = True
    """Whether its chat template knows any thinking."""
    drafter_bytes: int = 0
    """Memory of the models that draft for it."""
    sequences: int = 1
    """As many contexts' cells its context has."""

    @classmethod
    def of(cls, session: "Session") -> Self:
        drafting = session.drafting
        alone = (drafting.alone,) if session.sequences > 1 and drafting.alone else ()
        costs = drafting.controller.costs if drafting.controller else None
        return cls(
            session.reference,
            session.model.info,
            session.context.facts.n_ctx,
            tuple(drafting.names),
            drafting.missing,
            (*session.notes, *drafting.notes, *alone),
            session.load_seconds,
            session.bandwidth.bytes_per_second if session.bandwidth else None,
            session.plain_replies.rate or session.drafting.plain_rate,
            costs.largest / costs.seconds(costs.largest) if costs else None,
            offers_thinking(session.model.tokenizer.chat_template or ""),
            drafting.memory_bytes,
            session.sequences,
        )

    @property
    def is_remote(self) -> bool:
        """Whether a server elsewhere answers."""
        return self.info.backend == REMOTE

    @property
    def name(self) -> str:
        return self.reference.name

    @property
    def reach(self) -> "Reach | None":
        """What this model tells of the speed of others; None before its own is known.

        One that streams tells nothing of them.
        """
        if self.info.streamed_bytes_per_token:
            return None
        from app.loading.model_list import Reach

        return Reach.measured(self.bandwidth, self.plain_rate, self.info.bytes_read_per_token)


@dataclass(frozen=True, slots=True)
class Status:
    """A snapshot of the engine; text: progress, or an announcement.

    ahead: how much of the next request is read already, None while none is expected. program: the
    program that is answered over HTTP, "" while none is. news: what was found in idle time.
    """

    phase: Phase
    text: str = ""
    loaded: Loaded | None = None
    error: SpecchatError | None = None
    ahead: AheadState | None = None
    program: str = ""
    news: str = ""


def crash_report(error: Exception, paths: Paths) -> SpecchatError:
    """Convert an internal error into one to show, and keep its traceback in the data folder."""
    remedy = "Please report this."
    with contextlib.suppress(OSError):
        make_private_folder(paths.data)
        write_whole(paths.last_error, "".join(traceback.format_exception(error)))
        remedy = f"Please report this; the details are in {paths.last_error}"
    return SpecchatError("an internal error", repr(error), remedy)
