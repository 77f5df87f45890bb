"""Ctrl-C at times when an exception would come amiss: it sets an event instead.

The signals that ask the program to end do what Ctrl-C does at that time, and are remembered.
"""

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, current_thread, main_thread
from types import FrameType

from app.cli.terminal import process
from app.cli.terminal.exit_codes import EXIT_INTERRUPTED
from app.end_signals import END_SIGNALS, code_after, heeded

_GRACE_SECONDS = 1.0
"""What is at work may take so long to end in order after Ctrl-C."""

_END_SECONDS = 3.0
"""The program ends so long after it was asked to, whatever it is at."""

_ended_by = 0


def ended_by() -> int:
    """The signal by which the program was asked to end, 0 while it was not."""
    return _ended_by


@contextmanager
def end_signals() -> Iterator[None]:
    """Let a signal that asks the program to end do what Ctrl-C does; ended_by tells of it.

    Who waits for the end may kill what takes long: it never takes longer than a few seconds.
    """
    global _ended_by  # noqa: PLW0603 - a process is asked to end as a whole
    _ended_by = 0

    def on_end(number: int, frame: FrameType | None) -> None:
        global _ended_by  # noqa: PLW0603
        if _ended_by:  # a terminal that closes tells it twice: by the system and by the shell
            return
        _ended_by = number
        as_ctrl_c = signal.getsignal(signal.SIGINT)
        if callable(as_ctrl_c):
            as_ctrl_c(signal.SIGINT, frame)
        else:  # whoever started it has it ignore Ctrl-C
            raise KeyboardInterrupt

    with _watched(END_SIGNALS, _END_SECONDS):
        before = [(number, signal.getsignal(number)) for number in heeded()] if _may_set() else []
        for number, _ in before:
            signal.signal(number, on_end)
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)


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

    def leave() -> None:
        process.leave(EXIT_INTERRUPTED)

    with _watched((signal.SIGINT, *END_SIGNALS), _GRACE_SECONDS), _caught(leave) as stop:
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

    if not _may_set():
        yield stop
        return
    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _may_set() -> bool:
    """Handlers of signals belong to the main thread."""
    return current_thread() is main_thread()


@contextmanager
def _watched(numbers: tuple[int, ...], seconds: float) -> Iterator[None]:
    """Python's own handlers wait for native code to return; a thread of its own need not."""
    if not _may_set():
        yield
        return
    arriving, told = socket.socketpair()
    told.setblocking(False)
    watcher = Thread(target=_watch, args=(arriving, numbers, seconds), name="signals", daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        told.close()
        watcher.join()
        arriving.close()


def _watch(arriving: socket.socket, numbers: tuple[int, ...], seconds: float) -> None:
    """End the program a while after the first of some signals, or at a Ctrl-C after it."""
    first, end = 0, 0.0
    try:
        while came := arriving.recv(1):
            number = came[0]
            if first and number == signal.SIGINT and number in numbers:
                break
            if not first and number in numbers:
                first, end = number, time.monotonic() + seconds
            if first:
                arriving.settimeout(max(end - time.monotonic(), 0.001))
        else:
            return
    except TimeoutError:
        pass
    process.abandon(code_after(first))
