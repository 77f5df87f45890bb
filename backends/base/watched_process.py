"""A child process whose answers are waited for within bounds of time and memory."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import psutil

_POLL_SECONDS = 0.1
_LAST_BYTES = 4096
_MOST_CHARACTERS = 200


class StoppedError(Exception):
    """The process gives no answer; its text says why."""


class WatchedProcess:
    """Answers requests with a line each; after an error it is to be closed."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        """Start an interpreter with the module path of this one.

        Raises:
            OSError: no process can be started.
        """
        root = str(Path(__file__).resolve().parents[2])
        paths = filter(None, [root, os.environ.get("PYTHONPATH")])
        own = {"PYTHONPATH": os.pathsep.join(paths), **(environment or {})}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=os.environ | own,
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except OSError:
            self._log.close()
            raise
        self._answers: SimpleQueue[bytes] = SimpleQueue()
        Thread(target=self._receive, name=module, daemon=True).start()

    def _receive(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._answers.put(line)
        self._answers.put(b"")

    def send(self, request: Mapping[str, Any], data: bytes = b"") -> None:
        """Send a line of JSON, and bytes that it announces."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, as reading its answer will show
            self._process.stdin.write(json.dumps(request, default=str).encode() + b"\n" + data)
            self._process.stdin.flush()

    def line(
        self, seconds: float, most_bytes: int, tick: Callable[[], None] = lambda: None
    ) -> bytes:
        """The next line of its output.

        tick: called ten times a second; an exception from it is passed on.

        Raises:
            StoppedError: it ended, took too long or too much memory.
        """
        ends = time.monotonic() + seconds
        while True:
            try:
                line = self._answers.get(timeout=_POLL_SECONDS)
            except Empty:
                tick()
                if time.monotonic() > ends:
                    raise StoppedError(f"it did not answer in {seconds:.0f} s") from None
                if self._held_bytes() > most_bytes:
                    raise StoppedError(f"it took over {most_bytes / 1e9:.1f} GB") from None
                continue
            if not line:
                raise StoppedError(self._last_words())
            return line

    def _held_bytes(self) -> int:
        try:
            return psutil.Process(self._process.pid).memory_info().rss
        except psutil.Error:
            return 0

    def _last_words(self) -> str:
        """How the process ended, with the last line that it wrote to its log."""
        code = self._process.wait()
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(end - _LAST_BYTES, 0))
        text = self._log.read().decode("utf-8", errors="replace").strip()
        line = text.splitlines()[-1] if text else ""
        file, _, failed = line.partition(": ")
        line = failed if file.rpartition(":")[2].isdecimal() else line
        how = f"its process ended with {_named(code)}"
        return f"{how}: {line[:_MOST_CHARACTERS]}" if line else how

    def close(self) -> None:
        """Kill the process and close its pipes. Safe to call again."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # unsent input
            self._process.stdin.close()
        self._log.close()


def _named(code: int) -> str:
    """Exit status in words, by the name of the signal if there was one."""
    try:
        return signal.Signals(-code).name if code < 0 else f"status {code & 0xFFFFFFFF:#x}"
    except ValueError:
        return f"signal {-code}"
