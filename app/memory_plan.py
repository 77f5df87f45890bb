"""How much context and which drafters go into memory; drafters are given up before context."""

from dataclasses import dataclass

from backends.base import Context, DraftUnavailableError, Model, OutOfMemoryError
from models.byte_sizes import gigabytes
from models.metadata.memory_bill import bill
from models.metadata.model_facts import ModelFacts

_SMALLEST_CONTEXT = 512


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """room is what drafters may take, in bytes, None where the machine does not tell."""

    n_ctx: int
    usual: int
    room: int | None


def plan(
    name: str, facts: ModelFacts, asked: int | None, usual: int, free: int | None
) -> MemoryPlan:
    """The context of a model in free bytes: as asked for, else the largest up to usual tokens.

    Raises:
        OutOfMemoryError: even the smallest context, or the one asked for, does not fit.
    """
    wanted = asked or min(facts.context_limit or usual, usual)
    if free is None or wanted > (facts.context_limit or wanted):
        # A GPU tells when asked; a context the model does not have is refused by its backend.
        return MemoryPlan(wanted, wanted, None)
    least = wanted if asked else min(wanted, _SMALLEST_CONTEXT)
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
    """The wanted context halved until the model fits in free bytes; None if it never does."""
    n_ctx = wanted
    while bill(facts, n_ctx).total > free:
        if n_ctx // 2 < least:
            return None
        n_ctx //= 2
    return n_ctx


def open_context(model: Model, planned: MemoryPlan, asked: int | None) -> tuple[Context, list[str]]:
    """Open a context as planned, and say what was given up.

    A GPU tells only then whether it has the memory; the context is halved until it has.

    Raises:
        OutOfMemoryError: not even the smallest context fits.
        UsageError: the model has no such context.
    """
    n_ctx = planned.n_ctx
    while True:
        try:
            context = model.open(n_ctx)
        except OutOfMemoryError:
            if asked or n_ctx // 2 < _SMALLEST_CONTEXT:
                raise
            n_ctx //= 2
            continue
        short = f"memory is short: the context is {n_ctx:,} tokens instead of {planned.usual:,}"
        return context, [short] if n_ctx < planned.usual else []


def drafter_context(
    name: str, facts: ModelFacts, n_ctx: int, room: int | None
) -> tuple[int, list[str]]:
    """Tokens of a drafter's context beside a target's n_ctx, and what was given up.

    Past its own context a drafter proposes nothing; the target goes on alone.

    Raises:
        DraftUnavailableError: the drafter does not fit at all.
    """
    wanted = min(n_ctx, facts.context_limit or n_ctx)
    if room is None:
        return wanted, []
    fitting = largest_context(facts, wanted, min(wanted, _SMALLEST_CONTEXT), room)
    if fitting is None:
        needed = bill(facts, min(wanted, _SMALLEST_CONTEXT))
        raise DraftUnavailableError(
            f"{name} is given up: memory is short",
            f"it needs {gigabytes(needed.total)} ({needed.words}), and {gigabytes(max(room, 0))} "
            "are free beside the model",
        )
    shrunk = f"memory is short: {name} drafts up to {fitting:,} tokens of context, not {wanted:,}"
    return fitting, [shrunk] if fitting < wanted else []


def _remedy(facts: ModelFacts, asked: int | None, free: int) -> str:
    fitting = largest_context(facts, asked, _SMALLEST_CONTEXT, free) if asked else None
    if fitting:
        return f"Use --ctx {fitting} or less."
    return "Choose a smaller model or quantization, or free some memory."
