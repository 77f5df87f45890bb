"""Stopping a pass that takes long before its end: one over many tokens, or that reads weights."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

_is_stopped: ContextVar[Callable[[], bool] | None] = ContextVar("is_stopped", default=None)


@contextmanager
def stopping_passes(is_stopped: Callable[[], bool]) -> Generator[None]:
    """Let passes within the block end early, with PassStoppedError, once is_stopped holds.

    Contexts whose passes it can stop say so (stops_passes). It may be asked on another thread.
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


def stop_of_passes() -> Callable[[], bool] | None:
    """What tells whether passes that run in this thread shall end; None outside of such a block."""
    return _is_stopped.get()
