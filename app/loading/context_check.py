"""Checks a context size before it is set: what cannot work is refused, and nothing changes."""

from app.loading.model_list import facts_for_bill
from app.loading.placement import plan, stream_plan
from backends.base import ModelInfo, UsageError, check_context
from backends.engines.engine_facts import free_memory
from models.metadata.memory_bill import bill

LEAST_CONTEXT = 512
"""Fewer tokens hold no conversation."""


def check_new_context(n_ctx: int, info: ModelInfo | None, present: int, layers: int | None) -> None:
    """Refuse a context that is too small, or more than the loaded model was trained for or fits.

    info: None while no model is loaded. present: tokens of its context, whose memory is freed.
    layers: those that were to run on a GPU.

    Raises:
        SpecchatError: the size cannot be used.
    """
    if n_ctx < LEAST_CONTEXT:
        what = f"a context of {n_ctx:,} tokens is too small"
        raise UsageError(what, f"it must be at least {LEAST_CONTEXT}")
    if info is None:
        return
    check_context(info.name, n_ctx, info.context_limit)
    facts = facts_for_bill(info.path) if n_ctx > present else None
    if facts is None:
        return
    facts = facts.with_cache(info.cache_type)
    free = free_memory(info.backend, layers)
    if free is None:
        return
    if info.streamed_bytes_per_token:
        freed = info.locked_bytes + bill(facts, present).total - facts.weight_bytes
        stream_plan(info.name, facts, n_ctx, n_ctx, free + freed)
    else:
        plan(info.name, facts, n_ctx, n_ctx, free + bill(facts, present).total)
