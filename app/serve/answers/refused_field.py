"""Names the field of a request that the engine refused; it knows prompts and grammars alone."""

import asyncio

from app.serve.dialect import AskedReply
from app.serve.refusal import RefusalKind, RefusedError
from backends.base import UsageError
from decoding.constraint.compiled_grammar import compiled


async def with_field(refusal: RefusedError, asked: AskedReply) -> RefusedError:
    """A refusal that names the field of the dialect which is wrong, if one is known to be."""
    if refusal.param:
        return refusal
    field = ""
    if refusal.kind is RefusalKind.CONTEXT_EXCEEDED:
        field = asked.prompt_field
    elif refusal.kind is RefusalKind.INVALID and await asyncio.to_thread(_has_wrong_form, asked):
        field = asked.form_field
    return RefusedError(refusal.kind, refusal.message, field)


def _has_wrong_form(asked: AskedReply) -> bool:
    """Whether the form of the reply is what the engine refuses; all choices have the same."""
    grammar = asked.requests[0].options.grammar
    if grammar is None:
        return False
    try:
        compiled(grammar)
    except UsageError:
        return True
    return False
