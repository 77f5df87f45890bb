"""Stopping a pass that takes long, such as one that reads its weights from disk, before its end."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

_is_stopped: ContextVar[Callable[[], bool] | None] = ContextVar("is_stopped", default=None)


@contextmanager
def stopping_passes(is_stopped: Callable[[], bool]) -> Generator[None]:
    """Let passes within the block end early, with PassStoppedError, once is_stopped holds.

    Only engines with long passes ask; a pass in memory is over within the second anyway.
    """
    token = _is_stopped.set(is_stopped)
    try:
        yield
    finally:
        _is_stopped.reset(token)


def pass_is_stopped() -> bool:
    """Whether the pass that runs in this thread shall end."""
    is_stopped = _is_stopped.get()
    return is_stopped is not None and is_stopped()
