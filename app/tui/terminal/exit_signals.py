"""Orderly exit on a signal, with that signal's exit code."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType

from app.end_signals import END_SIGNALS, code_after, heeded


class ExitSignals:
    """Handles the signals that end the app. code: the exit code, None while there was no signal."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._exit: Callable[[], object] | None = None

    @contextmanager
    def handled(self) -> Generator[None, None, None]:
        """Handle the signals within this context."""
        numbers = heeded((signal.SIGINT, *END_SIGNALS))
        previous = [(number, signal.signal(number, self._handle)) for number in numbers]
        try:
            yield
        finally:
            for number, handler in previous:
                signal.signal(number, handler)

    def on_signal(self, exit_app: Callable[[], object]) -> None:
        """Call `exit_app` in the running event loop on a signal, or now if one has arrived."""
        loop = asyncio.get_running_loop()
        self._exit = lambda: loop.call_soon_threadsafe(exit_app)
        if self.code is not None:
            self._exit()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.code is None:  # a closing terminal sends two: by the system and by the shell
            self.code = code_after(number)
            if self._exit is not None:
                with suppress(RuntimeError):  # the loop is closed: the app is exiting already
                    self._exit()
