"""Divides memory for a model that does not fit: context, drafter, and the weights to hold."""

from dataclasses import replace

from app.loading.memory_plan import SMALLEST_CONTEXT, MemoryPlan
from backends.base import OutOfMemoryError
from backends.streaming.streamed_chunk import STREAMED_CHUNK
from models.byte_sizes import gigabytes
from models.metadata.memory_bill import MemoryBill, bill
from models.metadata.model_facts import ModelFacts

_RESERVED_SHARE = 1 / 8
_LEAST_SHARE, _LEAST_RESERVED = 1 / 5, 160_000_000
_FEWEST_RESERVED = 64_000_000
"""Left free for pages on their way from the disk, for the libraries' own, and for other programs:
an eighth, but at least the smaller of a fifth and 160 MB, and 64 MB in any case. 1,194 MB of
weights in a memory group of 900 MB, with a drafter of 92 MB: a pass over 20 tokens took 1.0 s with
104 MB left free, 0.74 with 158, 0.73 with 208, 0.76 with 266; without a drafter a token took 0.41
and 0.39 s with 104 and 160 MB."""

_CACHE_SHARE = 1 / 8
"""Of free memory, for context and working memory unless the user asks for a context: what they take
is read from disk in every pass."""


def stream_plan(
    name: str, facts: ModelFacts, asked: int | None, usual: int, free: int
) -> MemoryPlan:
    """Plan a model that streams, without a drafter: all but context and reserve holds weights.

    free: bytes of memory.

    Raises:
        OutOfMemoryError: context and working memory alone do not fit.
    """
    wanted = asked or min(facts.context_limit or usual, usual)
    n_ctx = asked or _context(facts, wanted, free)
    needed = _beside_weights(facts, n_ctx)
    left = free - reserve(free) - needed.total
    if left < 0:
        raise OutOfMemoryError(
            f"{name} cannot even stream from disk with a context of {n_ctx:,} tokens",
            f"that takes {gigabytes(needed.total)} of memory beside the weights "
            f"({needed.words}); {gigabytes(free)} are free, of which "
            f"{gigabytes(reserve(free))} are left alone",
            "Free some memory, or choose a smaller model or quantization.",
        )
    return MemoryPlan(n_ctx, wanted, 0, lock_bytes=left)


def with_drafter(planned: MemoryPlan, drafter_bytes: int) -> MemoryPlan:
    """The plan with a part of the held weights given up for drafters."""
    assert planned.lock_bytes is not None
    taken = min(drafter_bytes, planned.lock_bytes)
    return replace(planned, room=taken, lock_bytes=planned.lock_bytes - taken)


def can_stream(facts: ModelFacts, free: int) -> bool:
    """Whether a model could stream with the smallest context."""
    least = min(facts.context_limit or SMALLEST_CONTEXT, SMALLEST_CONTEXT)
    return _beside_weights(facts, least).total <= free - reserve(free)


def reserve(free: int) -> int:
    """Bytes of the free memory that stay free."""
    least = min(round(_LEAST_SHARE * free), _LEAST_RESERVED)
    return max(round(_RESERVED_SHARE * free), least, _FEWEST_RESERVED)


def _context(facts: ModelFacts, wanted: int, free: int) -> int:
    """The wanted context, halved until it leaves enough memory for weights."""
    n_ctx = wanted
    while n_ctx // 2 >= SMALLEST_CONTEXT:
        if _beside_weights(facts, n_ctx).total <= _CACHE_SHARE * free:
            break
        n_ctx //= 2
    return n_ctx


def _beside_weights(facts: ModelFacts, n_ctx: int) -> MemoryBill:
    """Bill of all but the weights."""
    return bill(replace(facts, weight_bytes=0, most_tokens=STREAMED_CHUNK), n_ctx)
