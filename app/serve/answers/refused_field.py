"""Names the field of a request that the engine refused; it knows prompts and grammars alone."""

from app.serve.dialect import AskedReply
from app.serve.refusal import RefusalKind, RefusedError


def with_field(refusal: RefusedError, asked: AskedReply) -> RefusedError:
    """A refusal that names the field of the dialect which is wrong, if one is known to be."""
    fields = {
        RefusalKind.CONTEXT_EXCEEDED: asked.prompt_field,
        RefusalKind.UNUSABLE_FORM: asked.form_field,
    }
    param = refusal.param or fields.get(refusal.kind, "")
    return RefusedError(refusal.kind, refusal.message, param)
