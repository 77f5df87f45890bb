"""Ctrl-C and signals that end the process, handled by an event instead of an exception.

Signals that ask the process to end act like Ctrl-C, and are remembered for the exit code.
"""

import signal
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Thread, current_thread, main_thread
from types import FrameType

from app.cli.terminal import process
from app.cli.terminal.process import EXIT_INTERRUPTED
from app.process import END_SIGNALS, code_after, heeded

_GRACE_SECONDS = 1.0
"""Time to end in order after Ctrl-C."""

_END_SECONDS = 5.0
"""Time to end after a signal, whatever is running; Docker kills a process after 10 s."""

_FROZEN_SECONDS = 0.5
"""By so much the watcher itself is late only where the whole process was not run, or the machine
slept: it had no time to end in, and gets it again."""

_ended_by = 0


def ended_by() -> int:
    """The signal that asked the process to end, or 0."""
    return _ended_by


@contextmanager
def end_signals() -> Generator[None, None, None]:
    """Treat signals that ask the process to end as Ctrl-C, and record them in `ended_by`.

    The end takes a few seconds at most: a service manager would kill the process after that.
    """
    global _ended_by  # noqa: PLW0603 - a process is asked to end as a whole
    _ended_by = 0

    def on_end(number: int, frame: FrameType | None) -> None:
        global _ended_by  # noqa: PLW0603
        if _ended_by:  # a closing terminal sends it twice: from the system and from the shell
            return
        _ended_by = number
        as_ctrl_c = signal.getsignal(signal.SIGINT)
        if callable(as_ctrl_c):
            as_ctrl_c(signal.SIGINT, frame)
        else:  # the parent process set Ctrl-C to be ignored
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
def interruptible() -> Generator[Event, None, None]:
    """An event set by the first Ctrl-C, to stop an answer and keep its text.

    The second Ctrl-C raises KeyboardInterrupt.
    """

    def interrupt() -> None:
        raise KeyboardInterrupt

    with _caught(interrupt) as stop:
        yield stop


@contextmanager
def deferred() -> Generator[Event, None, None]:
    """Defer Ctrl-C while native code runs, which would swallow an exception.

    If the code takes over a second more, or Ctrl-C is pressed again, the process ends at once.
    """

    def leave() -> None:
        process.leave(EXIT_INTERRUPTED)

    with _watched((signal.SIGINT, *END_SIGNALS), _GRACE_SECONDS), _caught(leave) as stop:
        yield stop
    if stop.is_set():
        raise KeyboardInterrupt


@contextmanager
def _caught(again: Callable[[], None]) -> Generator[Event, None, None]:
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
    """Whether this is the main thread: only there can signal handlers be set."""
    return current_thread() is main_thread()


@contextmanager
def _watched(numbers: tuple[int, ...], seconds: float) -> Generator[None, None, None]:
    """Watch signals on another thread: Python's handlers wait until native code returns."""
    if not _may_set():
        yield
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    watcher = Thread(target=_watch, args=(reading, numbers, seconds), name="signals", daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writing.close()
        watcher.join()
        reading.close()


def _watch(reading: socket.socket, numbers: tuple[int, ...], seconds: float) -> None:
    """End the process some seconds after the first signal, or at the next Ctrl-C."""
    first, end = 0, 0.0
    while True:
        try:
            received = reading.recv(1)
        except TimeoutError:
            now = time.monotonic()
            if now < end + _FROZEN_SECONDS:
                break
            end = now + seconds
        else:
            if not received:
                return
            number = received[0]
            if first and number == signal.SIGINT and number in numbers:
                break
            if not first and number in numbers:
                first, end = number, time.monotonic() + seconds
        if first:
            reading.settimeout(max(end - time.monotonic(), 0.001))
    process.abandon(code_after(first))
