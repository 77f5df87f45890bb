"""Child processes that render chat templates, the next one always started ahead."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from threading import Event, Timer
from typing import Any

_WORKER = Path(__file__).with_name("template_worker.py")
_SECONDS = 10.0
"""Time limit of all renderings for a prompt, which take milliseconds, and of what is left of the
child's start, which a busy machine may delay."""

Render = Callable[[dict[str, Any], int], dict[str, str]]
"""Renders a template with variables to {"text": ...}, or {"error": ...} also where that has more
than so many characters."""


class TemplateProcess:
    """Renders each template in a fresh child, which is killed if it takes too long.

    The next child is started ahead, so that rendering does not wait for an interpreter: at once, or
    when get_ready is called, as its start would slow down what the caller does with the text.
    """

    def __init__(self) -> None:
        self._waiting: subprocess.Popen[bytes] | None = _start()
        self._is_closed = False

    @contextlib.contextmanager
    def opened(self, template: str, *, starts_next: bool = True) -> Generator[Render]:
        """Render a template as often as a prompt needs; it never causes an exception."""
        worker = self._waiting or _start()
        self._waiting = None
        is_late = Event()
        clock = Timer(_SECONDS, lambda: (is_late.set(), worker.kill()))
        clock.daemon = True
        clock.start()

        def render(variables: dict[str, Any], max_chars: int) -> dict[str, str]:
            try:
                _tell(worker, [variables, max_chars])
                assert worker.stdout is not None
                return json.loads(worker.stdout.readline())
            except (OSError, ValueError):
                late = f"it ran for over {_SECONDS:.0f} s"
                return {"error": late if is_late.is_set() else "its process ended"}

        try:
            with contextlib.suppress(OSError):  # each rendering then tells
                _tell(worker, template)
            yield render
        finally:
            clock.cancel()
            _end(worker)
            if starts_next:
                self.get_ready()

    def get_ready(self) -> None:
        """Start the next child, if none waits; after close nothing would end it."""
        if self._waiting is None and not self._is_closed:
            self._waiting = _start()

    def close(self) -> None:
        self._is_closed = True
        if self._waiting is not None:
            _end(self._waiting)
            self._waiting = None


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", str(_WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _tell(worker: subprocess.Popen[bytes], value: object) -> None:
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(value).encode() + b"\n")
    worker.stdin.flush()


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
