"""Errors in Anthropic's form."""

from collections.abc import Mapping

from app.serve.dialect import Json
from app.serve.refusal import RefusalKind, RefusedError

_TYPES: Mapping[RefusalKind, str] = {
    RefusalKind.UNAUTHORIZED: "authentication_error",
    RefusalKind.FORBIDDEN: "permission_error",
    RefusalKind.NOT_FOUND: "not_found_error",
    RefusalKind.TOO_LARGE: "request_too_large",
    RefusalKind.FAILED: "api_error",
    RefusalKind.BUSY: "overloaded_error",
    RefusalKind.LOADING: "overloaded_error",
    RefusalKind.STOPPED: "overloaded_error",
}


def error_body(refusal: RefusedError) -> Json:
    """The body of an error."""
    message = refusal.message
    if refusal.kind is RefusalKind.CONTEXT_EXCEEDED:
        # Claude Code shortens its conversation when an error says this.
        message = f"prompt is too long: {message} (context_length_exceeded)"
    kind = _TYPES.get(refusal.kind, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}
