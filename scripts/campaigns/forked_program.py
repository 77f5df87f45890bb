"""Runs specchat in a child process, forked from one that has already imported everything.

It runs in a real pseudo-terminal or with pipes, and everything it shows is noted with its time.
"""

import contextlib
import fcntl
import gc
import importlib
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psutil

COLUMNS, ROWS = 120, 40
_CONTROL = re.compile(r"\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|[PX^_\]].*?(\x1b\\|\x07)|[@-Z\\-_])")
_PATIENCE_SECONDS = 120.0
"""What must come comes sooner, also on a busy machine."""

_LONGEST_CONTROL = 24


class OverdueError(Exception):
    """What must come did not come."""


@dataclass(slots=True)
class Program:
    """A program at work. parts: what it wrote, without control sequences, with the time of each."""

    process: int
    terminal: int
    parts: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    raw: bytearray = field(default_factory=bytearray)
    children: list[psutil.Process] = field(default_factory=list[psutil.Process])
    _code: int | None = None
    _rest: bytes = b""

    def type(self, text: str) -> None:
        """Press keys."""
        with contextlib.suppress(OSError):
            os.write(self.terminal, text.encode())

    def read(self, seconds: float) -> bool:
        """Take what comes for some time; False once it has ended."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            ready, _, _ = select.select([self.terminal], [], [], max(left, 0.0))
            if ready:
                try:
                    came = os.read(self.terminal, 1 << 16)
                except OSError:  # Linux: nobody holds the other side any more
                    came = b""
                if not came:
                    return False
                self._take(came)
            elif left <= 0:
                return True

    def _take(self, came: bytes) -> None:
        """Note what came; a control sequence or a character that is cut waits for its rest."""
        self.raw += came
        begun = self._rest + came
        cut = max(begun.rfind(b"\x1b"), 0) if b"\x1b" in begun[-_LONGEST_CONTROL:] else len(begun)
        self._rest = begun[cut:]
        text = begun[:cut].decode(errors="replace")
        self.parts.append((time.monotonic(), _CONTROL.sub("", text)))

    def first(self, holds: Callable[[str], bool], since: float) -> float:
        """When what was shown since a time first was such; infinite if it never was."""
        text = ""
        for when, part in self.parts:
            if when >= since:
                text += part
                if holds(text):
                    return when
        return float("inf")

    def shown(self, until: float = float("inf"), since: float = 0.0) -> str:
        """What was shown in a time."""
        return "".join(text for when, text in self.parts if since <= when <= until)

    def wait_for(self, text: str, since: float = 0.0) -> None:
        """Go on until a text was shown.

        Raises:
            OverdueError: it did not come, or the program ended first.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        while text not in self.shown(since=since):
            if not self.read(0.02) or time.monotonic() > end:
                raise OverdueError(f"{text!r} was never shown: {self.shown()[-1500:]!r}")

    def end_by(self, number: int) -> float:
        """Send a signal, as a person or a system would; when it was sent."""
        with contextlib.suppress(psutil.Error):
            self.children = psutil.Process(self.process).children(recursive=True)
        sent = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, number)
        return sent

    def hang_up(self) -> float:
        """Close the terminal, as a window is closed; when it was closed."""
        with contextlib.suppress(psutil.Error):
            self.children = psutil.Process(self.process).children(recursive=True)
        closed = time.monotonic()
        os.close(self.terminal)
        self.terminal = os.open(os.devnull, os.O_RDWR)
        return closed

    def wait(self, seconds: float = _PATIENCE_SECONDS) -> int:
        """The exit code, as a shell tells it, once all was read.

        Raises:
            OverdueError: it goes on.
        """
        end = time.monotonic() + seconds
        while self.read(0.05) and time.monotonic() < end:
            pass
        while self._code is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                ended = os.waitstatus_to_exitcode(status)
                self._code = ended if ended >= 0 else 128 - ended
            elif time.monotonic() > end:
                raise OverdueError(f"it goes on {seconds:.0f} s after it was told to end")
            else:
                select.select([], [], [], 0.005)
        return self._code

    def orphans(self, seconds: float = _PATIENCE_SECONDS) -> list[str]:
        """Child processes that go on after it."""
        _, alive = psutil.wait_procs(self.children, timeout=seconds)
        return [" ".join(one.cmdline()) for one in alive if one.is_running()]

    def close(self) -> None:
        """End it in any way and let go of the terminal."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.process, 0)
        os.close(self.terminal)


def import_all(modules: tuple[str, ...]) -> None:
    """Import what programs will need; no thread may run afterwards."""
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # pages that are shared with the programs stay so
    threads = psutil.Process().num_threads()
    if threads != 1:
        raise RuntimeError(f"{threads} threads run: a fork would be without them")


def start(
    run: Callable[[], object], arguments: list[str], environment: Mapping[str, str]
) -> Program:
    """Begin a program in a terminal of its own."""
    process, terminal = pty.fork()
    if process == 0:
        _become(run, arguments, environment)
    return Program(process, terminal)


def _become(
    run: Callable[[], object], arguments: list[str], environment: Mapping[str, str]
) -> None:
    """The child: what an interpreter that was just started has, then the program."""
    code = 1
    try:
        # Not by the parent, which may be slower than the program.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.environ.update(environment)
        sys.argv = arguments
        sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)
