"""Ctrl-C at times when an exception would come amiss: it sets an event instead."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, current_thread, main_thread
from types import FrameType

from app.cli import terminal

_GRACE_SECONDS = 1.0
"""What is at work may take so long to end in order after Ctrl-C."""


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

    Where that does not come within a second, or Ctrl-C comes again, the program ends at once.
    """
    with _watched(), _caught(_leave) as stop:
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


@contextmanager
def _watched() -> Iterator[None]:
    """Python's own handlers wait for native code to return; a thread of its own need not."""
    if current_thread() is not main_thread():
        yield
        return
    arriving, told = socket.socketpair()
    told.setblocking(False)
    watcher = Thread(target=_watch, args=(arriving,), name="interrupts", daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        told.close()
        watcher.join()
        arriving.close()


def _watch(arriving: socket.socket) -> None:
    """End the program a while after the first Ctrl-C, or at the second; arriving: signals."""
    try:
        while numbers := arriving.recv(1):
            if numbers[0] != signal.SIGINT:
                continue
            if arriving.gettimeout() is not None:
                break
            arriving.settimeout(_GRACE_SECONDS)
        else:
            return
    except TimeoutError:
        pass
    _leave()


def _leave() -> None:
    terminal.leave(terminal.EXIT_INTERRUPTED)
