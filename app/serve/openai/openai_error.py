"""Errors in OpenAI's form."""

from collections.abc import Mapping

from app.serve.dialect import Json
from app.serve.refusal import RefusalKind, RefusedError

_TYPES: Mapping[RefusalKind, str] = {
    RefusalKind.UNAUTHORIZED: "authentication_error",
    RefusalKind.FORBIDDEN: "permission_error",
    RefusalKind.NOT_FOUND: "not_found_error",
    RefusalKind.FAILED: "server_error",
    RefusalKind.BUSY: "overloaded_error",
    RefusalKind.LOADING: "unavailable_error",
    RefusalKind.STOPPED: "unavailable_error",
}
_CODES: Mapping[RefusalKind, str] = {
    RefusalKind.CONTEXT_EXCEEDED: "context_length_exceeded",
    RefusalKind.UNAUTHORIZED: "invalid_api_key",
    RefusalKind.BUSY: "queue_full",
    RefusalKind.LOADING: "model_not_loaded",
    RefusalKind.STOPPED: "answer_stopped",
}


def error_body(refusal: RefusedError) -> Json:
    """The body of an error."""
    error = {
        "message": refusal.message,
        "type": _TYPES.get(refusal.kind, "invalid_request_error"),
        "param": refusal.param or None,
        "code": _CODES.get(refusal.kind),
    }
    return {"error": error}
