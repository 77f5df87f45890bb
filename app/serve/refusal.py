"""Why a request is not answered; each dialect words it in its own body."""

from collections.abc import Mapping
from enum import Enum

from backends.base import PromptTooLargeError, PromptTooLongError, SpecchatError, UsageError
from decoding.constraint.grammar import GrammarError


class RefusalKind(Enum):
    """What is wrong; the last three digits are its HTTP status."""

    INVALID = 400
    CONTEXT_EXCEEDED = 1400
    UNUSABLE_FORM = 2400
    UNAUTHORIZED = 401
    FORBIDDEN = 403
    NOT_FOUND = 404
    NO_MODEL = 1404
    METHOD = 405
    SLOW = 408
    CHANGED = 409
    GONE = 410
    TOO_LARGE = 413
    MEDIA_TYPE = 415
    FAILED = 500
    BUSY = 503
    LOADING = 1503
    STOPPED = 2503

    @property
    def status(self) -> int:
        return self.value % 1000


class RefusedError(Exception):
    """A request that is not answered.

    param: the field that is wrong, "" if none is. headers: further ones of the response.
    """

    def __init__(
        self,
        kind: RefusalKind,
        message: str,
        param: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param
        self.headers = headers or {}


def stopped() -> RefusedError:
    """A request whose answer ended here, by no fault of who asked."""
    return RefusedError(RefusalKind.STOPPED, "the answer was stopped at the server; try again")


def invalid(message: str, param: str = "") -> RefusedError:
    """A request that asks for what cannot be, or what is not understood."""
    return RefusedError(RefusalKind.INVALID, message, param)


def refusal_of(error: Exception) -> RefusedError:
    """An error of the engine, as a program is told of it."""
    if isinstance(error, PromptTooLargeError | PromptTooLongError):
        return RefusedError(RefusalKind.CONTEXT_EXCEEDED, error.summary)
    if isinstance(error, GrammarError):
        return RefusedError(RefusalKind.UNUSABLE_FORM, error.summary)
    if isinstance(error, UsageError):
        return RefusedError(RefusalKind.INVALID, error.summary)
    if isinstance(error, SpecchatError):
        return RefusedError(RefusalKind.FAILED, error.summary)
    return RefusedError(RefusalKind.FAILED, "the engine failed")
