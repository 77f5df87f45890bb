"""Child processes that render chat templates, the next one always started ahead."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_WORKER = Path(__file__).with_name("template_worker.py")
_SECONDS = 10.0
"""Time limit of a rendering, which takes milliseconds, and of what is left of the child's start,
which a busy machine may delay."""


class TemplateProcess:
    """Renders each template in a fresh child, which is killed if it takes too long.

    The next child is started ahead, so that rendering does not wait for an interpreter: at once, or
    when get_ready is called, as its start would slow down what the caller does with the text.
    """

    def __init__(self) -> None:
        self._waiting: subprocess.Popen[bytes] | None = _start()
        self._is_closed = False

    def render(
        self,
        template: str,
        variables: dict[str, Any],
        max_chars: int,
        *,
        starts_next: bool = True,
    ) -> dict[str, str]:
        """Render to {"text": ...} or {"error": ...}; a template never causes an exception."""
        worker = self._waiting or _start()
        self._waiting = None
        request = {"template": template, "variables": variables, "max_chars": max_chars}
        answer = _ask(worker, json.dumps(request).encode() + b"\n")
        if starts_next:
            self.get_ready()
        return answer

    def get_ready(self) -> None:
        """Start the next child, if none waits; after close nothing would end it."""
        if self._waiting is None and not self._is_closed:
            self._waiting = _start()

    def close(self) -> None:
        """End the waiting child."""
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


def _ask(worker: subprocess.Popen[bytes], request: bytes) -> dict[str, str]:
    try:
        output, _ = worker.communicate(request, timeout=_SECONDS)
        return json.loads(output)
    except subprocess.TimeoutExpired:
        return {"error": f"it ran for over {_SECONDS:.0f} s"}
    except (OSError, ValueError):
        return {"error": "its process ended"}
    finally:
        _end(worker)


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
