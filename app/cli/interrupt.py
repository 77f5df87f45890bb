"""Ctrl-C at times when an exception would come amiss: it sets an event instead."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, current_thread, main_thread
from types import FrameType

from app.cli.terminal import EXIT_INTERRUPTED


@contextmanager
def interruptible() -> Iterator[Event]:
    """An event that the first Ctrl-C sets, to stop an answer and keep what was said.

    The second raises KeyboardInterrupt as usual.
    """

    def interrupt() -> None:
        raise KeyboardInterrupt

    with _caught(interrupt) as stop:
        yield stop


@contextmanager
def deferred() -> Iterator[Event]:
    """While native code runs that would swallow an exception: Ctrl-C is kept for the end.

    The second ends the program at once.
    """
    with _caught(lambda: os._exit(EXIT_INTERRUPTED)) as stop:
        yield stop
    if stop.is_set():
        raise KeyboardInterrupt


@contextmanager
def _caught(again: Callable[[], None]) -> Iterator[Event]:
    stop = Event()

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            again()
        stop.set()

    if current_thread() is not main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
