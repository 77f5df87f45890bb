"""The end of the app when the system asks for it: in order, with the exit code of the signal."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from app.end_signals import END_SIGNALS, code_after, heeded


class Ending:
    """Whether the app was asked to end. code: what it then ends with, None while it was not."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._end: Callable[[], object] | None = None

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Take the signals, until the program is over."""
        numbers = heeded((signal.SIGINT, *END_SIGNALS))
        before = [(number, signal.signal(number, self._ask)) for number in numbers]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def begin(self, end: Callable[[], object]) -> None:
        """The app runs: end is what ends it, in its loop."""
        loop = asyncio.get_running_loop()
        self._end = lambda: loop.call_soon_threadsafe(end)
        if self.code is not None:
            self._end()

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        if self.code is None:  # a terminal that closes tells it twice: by the system and the shell
            self.code = code_after(number)
            if self._end is not None:
                with suppress(RuntimeError):  # its loop is closed: it is ending already
                    self._end()
