"""Plans context and drafters for the free memory; drafters are dropped before context."""

from dataclasses import dataclass

from app.loading.gpu_split import GpuSplit
from backends.base import Context, DraftUnavailableError, Model, OutOfMemoryError
from models.byte_sizes import gigabytes
from models.metadata.memory_bill import MemoryBill, bill
from models.metadata.model_facts import ModelFacts

SMALLEST_CONTEXT = 512
"""Tokens below which no context is reduced."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Tokens of context, and the bytes left for drafters.

    usual: the context without a shortage. room: None where free memory is unknown. lock_bytes:
    memory for weights of a model that streams from disk, None for one that fits. split: None for a
    model that runs on one device.
    """

    n_ctx: int
    usual: int
    room: int | None
    lock_bytes: int | None = None
    split: GpuSplit | None = None


def plan(
    name: str, facts: ModelFacts, asked: int | None, usual: int, free: int | None
) -> MemoryPlan:
    """Choose the context of a model: the one asked for, else the largest up to usual tokens.

    free: bytes of memory, None if unknown.

    Raises:
        OutOfMemoryError: the context asked for, or even the smallest one, does not fit.
    """
    wanted = asked or min(facts.context_limit or usual, usual)
    if free is None or wanted > (facts.context_limit or wanted):
        # A GPU reports a shortage on opening; the backend rejects a context over the model's limit.
        return MemoryPlan(wanted, wanted, None)
    least = wanted if asked else min(wanted, SMALLEST_CONTEXT)
    n_ctx = largest_context(facts, wanted, least, free)
    if n_ctx is None:
        needed = bill(facts, least)
        raise OutOfMemoryError(
            f"{name} with a context of {least:,} tokens needs {gigabytes(needed.total)} of memory",
            f"{needed.words}; {gigabytes(free)} are free",
            _remedy(facts, asked, free),
        )
    return MemoryPlan(n_ctx, wanted, free - bill(facts, n_ctx).total)


def largest_context(facts: ModelFacts, wanted: int, least: int, free: int) -> int | None:
    """Halve the wanted context until the model fits in free bytes; None if it never does."""
    n_ctx = wanted
    while bill(facts, n_ctx).total > free:
        if n_ctx // 2 < least:
            return None
        n_ctx //= 2
    return n_ctx


def open_context(
    model: Model, planned: MemoryPlan, asked: int | None, *, drafts: bool = True
) -> tuple[Context, list[str]]:
    """Open a context as planned; returns it with notes on reductions.

    drafts: whether drafts are to be verified in it.

    A GPU reports a shortage only now; the context is then halved until it fits.

    Raises:
        OutOfMemoryError: not even the smallest context fits.
        UsageError: the context exceeds the model's limit.
    """
    n_ctx = planned.n_ctx
    while True:
        try:
            context = model.open(n_ctx, drafts=drafts)
        except OutOfMemoryError:
            if asked or n_ctx // 2 < SMALLEST_CONTEXT:
                raise
            n_ctx //= 2
            continue
        short = f"memory is short: the context is {n_ctx:,} tokens instead of {planned.usual:,}"
        return context, [short] if n_ctx < planned.usual else []


def drafter_context(
    name: str, facts: ModelFacts, n_ctx: int, room: int | None
) -> tuple[int, list[str]]:
    """Choose a drafter's context beside a target's n_ctx; returns it with notes on reductions.

    Past its own context a drafter proposes nothing, and the target continues alone.

    Raises:
        DraftUnavailableError: the drafter does not fit at all.
    """
    wanted = min(n_ctx, facts.context_limit or n_ctx)
    if room is None:
        return wanted, []
    fitting = largest_context(facts, wanted, min(wanted, SMALLEST_CONTEXT), room)
    if fitting is None:
        raise _too_big(name, bill(facts, min(wanted, SMALLEST_CONTEXT)), room)
    shrunk = f"memory is short: {name} drafts up to {fitting:,} tokens of context, not {wanted:,}"
    return fitting, [shrunk] if fitting < wanted else []


def head_context(
    name: str, facts: ModelFacts, n_ctx: int, room: int | None
) -> tuple[int, list[str]]:
    """The context of a head, which is as large as its model's; nothing is ever reduced.

    Raises:
        DraftUnavailableError: it does not fit in room bytes.
    """
    needed = bill(facts, n_ctx)
    if room is not None and needed.total > room:
        raise _too_big(name, needed, room)
    return n_ctx, []


def _too_big(name: str, needed: MemoryBill, room: int) -> DraftUnavailableError:
    return DraftUnavailableError(
        f"{name} is not used: memory is short",
        f"it needs {gigabytes(needed.total)} ({needed.words}), and {gigabytes(max(room, 0))} "
        "are free beside the model",
    )


def _remedy(facts: ModelFacts, asked: int | None, free: int) -> str:
    fitting = largest_context(facts, asked, SMALLEST_CONTEXT, free) if asked else None
    if fitting:
        return f"Use --ctx {fitting} or less."
    return "Choose a smaller model or quantization, or free some memory."
