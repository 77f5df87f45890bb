"""The model that a server would load, and its context, without loading it."""

import contextlib

from app.loading.fetch_model import facts_before
from app.loading.memory_plan import plan
from app.loading.model_selection import choose_model, expected_backend
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions, check_ranges
from app.paths import Paths
from backends.base import OutOfMemoryError, check_context
from backends.engines.backend_selection import forms
from backends.engines.engine_resources import free_memory
from models.metadata.model_facts import facts_of
from models.reference import Reference


def served_model(options: SessionOptions, paths: Paths) -> tuple[str, int]:
    """The name of the model that a server opened with these options serves, and its context.

    The context is what fits into memory now.

    Raises:
        SpecchatError: there is no such model, no engine for it, its file is damaged, or it has no
            such context.
    """
    check_ranges(options)
    chosen = choose_model(options.model, paths, forms(options.backend))
    backend = expected_backend(chosen, options.backend)
    is_here = isinstance(chosen, Reference)
    facts = facts_of(chosen.path, backend) if is_here else facts_before(chosen)
    if facts is None:
        return chosen.name, options.ctx or DEFAULT_CONTEXT
    if facts.context_limit:
        check_context(chosen.name, options.ctx or 1, facts.context_limit)
    facts = facts.with_cache(options.cache_type)
    free = free_memory(backend, options.gpu_layers)
    with contextlib.suppress(OutOfMemoryError):  # it may be allowed to stream from disk
        return chosen.name, plan(chosen.name, facts, options.ctx, DEFAULT_CONTEXT, free).n_ctx
    return chosen.name, plan(chosen.name, facts, options.ctx, DEFAULT_CONTEXT, None).n_ctx
