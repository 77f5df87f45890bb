"""How quick the app is: first paint and exit, decode rate against `ask`, a flood of tokens.

Run on a machine with nothing else to do: python -m scripts.measure_app [ROUNDS]
"""

import argparse
import asyncio
import fcntl
import json
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from app.engine.engine import Engine
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from app.tui.app import SWITCH_SECONDS, SpecchatApp
from app.tui.chat_screen import ChatScreen
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.scripted import ScriptedModel, opened

SPECCHAT = [sys.executable, "-m", "app.cli.entry"]
QUESTION = "Write a long story about a lighthouse."
TOKENS = 512
FLOOD = 3000
PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 1.0
"""Between two looks at the history: more often, and the looking would slow the model."""

CTRL_Q = b"\x11"


class Terminal:
    """The app in a pseudo-terminal."""

    def __init__(self, *options: str, columns: int = 120) -> None:
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(SPECCHAT[0], [*SPECCHAT, *options])
        size = struct.pack("HHHH", 36, columns, 0, 0)
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, size)
        self.shown = b""

    def write(self, data: bytes) -> None:
        os.write(self._file, data)

    def read(self) -> bool:
        """Take what was painted; False once the app has ended."""
        if not select.select([self._file], [], [], 0.02)[0]:
            return True
        try:
            self.shown += os.read(self._file, 1 << 16)
        except OSError:
            return False
        return True

    def until(self, text: bytes) -> None:
        """Wait until something was painted."""
        end = time.monotonic() + PATIENCE_SECONDS
        while text not in self.shown and time.monotonic() < end and self.read():
            pass

    def leave(self) -> float:
        """Quit; returns the seconds that took."""
        begun = time.perf_counter()
        self.write(CTRL_Q)
        while self.read():
            pass
        os.waitpid(self._pid, 0)
        return time.perf_counter() - begun


def start() -> tuple[float, float, float]:
    """Seconds to the first paint, to quit at rest, and to quit while an answer is at work."""
    begun = time.perf_counter()
    terminal = Terminal()
    terminal.until(b"for commands")
    painted = time.perf_counter() - begun
    terminal.until(b"lists commands")
    at_rest = terminal.leave()
    terminal = Terminal()
    terminal.until(b"lists commands")
    terminal.write(QUESTION.encode() + b"\r")
    terminal.until(b"tok/s")
    return painted, at_rest, terminal.leave()


def asked() -> float:
    """Tokens per second of `specchat ask`."""
    options = ["--json", "--draft", "off", "--temperature", "0", "--max-tokens", str(TOKENS)]
    command = [*SPECCHAT, "ask", *options, QUESTION]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)["stats"]["decode_tokens_per_second"]


def in_app(columns: int) -> float:
    """Tokens per second of the same answer in the app."""
    terminal = Terminal("--draft", "off", columns=columns)
    terminal.until(b"lists commands")
    terminal.write(QUESTION.encode() + b"\r")
    end = time.monotonic() + PATIENCE_SECONDS
    rate, looked_at = None, time.monotonic()
    while rate is None and time.monotonic() < end:
        terminal.read()
        if time.monotonic() - looked_at >= LOOK_SECONDS:
            looked_at = time.monotonic()
            rate = _kept_rate()
    terminal.leave()
    assert rate is not None, "the answer did not end"
    Paths.of_this_user().history.unlink()
    return rate


def _kept_rate() -> float | None:
    path = Paths.of_this_user().history
    if not path.exists():
        return None
    history = History.open(path)
    try:
        endings = [one.ending for chat in history.chats() for one in history.messages(chat.number)]
    finally:
        history.close()
    found = re.search(r"([\d.]+) tok/s", " ".join(endings))
    return float(found[1]) if found else None


def prose(count: int) -> list[str]:
    """Words in short paragraphs."""
    return [f"word{n % 50} " if n % 40 else "end.\n\n" for n in range(1, count + 1)]


def fence(count: int) -> list[str]:
    """One long code block."""
    lines = [f"x{n % 50} = {n % 50}\n" if n % 8 == 0 else "y " for n in range(count)]
    return ["```python\n", *lines, "\n```"]


def bullets(count: int) -> list[str]:
    """One long list."""
    return [f"item{n % 50} " if n % 8 else "\n- " for n in range(count)]


async def flood(pieces: list[str]) -> tuple[float, float]:
    """A thousand tokens a second: the producer's rate, and the seconds the screen ends later."""
    engine = Engine(
        SessionOptions(draft="off"),
        Paths.of_this_user(),
        opened(ScriptedModel(pieces, rate=1000.0, n_ctx=16384)),
    )
    app = SpecchatApp(engine, None, "", SamplingSettings(temperature=0.0), 100_000)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, ChatScreen)
        await screen.view.send("go")
        work = screen.view.pending
        assert work is not None
        ended = None
        while screen.view.pending is not None:
            await asyncio.sleep(0.02)
            if ended is None and work.answer.is_done:
                ended = time.perf_counter()
        late = time.perf_counter() - ended if ended is not None else 0.0
        rate = work.answer.metrics.decode_tokens_per_second if work.answer.metrics else None
    engine.close(5.0)
    return rate or 0.0, late


@contextmanager
def own_home() -> Generator[None]:
    """Settings and chats apart from the user's; the same text in every run."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            HOME_VARIABLE: str(Path(folder)),
            "SPECCHAT_TEMPERATURE": "0",
            "SPECCHAT_MAX_TOKENS": str(TOKENS),
        }
        yield


def main() -> None:
    """Print every figure, each round on a line of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    with own_home():
        start()  # fills the caches of a first start
        for _ in range(rounds):
            painted, at_rest, at_work = start()
            print(
                f"first paint {painted:.2f} s, quit {at_rest:.2f} s, in mid-reply {at_work:.2f} s"
            )
        Paths.of_this_user().history.unlink()
        for columns, what in ((120, "with the panel"), (100, "without the panel")):
            ratios = [in_app(columns) / asked() for _ in range(rounds)]
            listed = " ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"decode rate of ask, {what}: {statistics.median(ratios):.2f} ({listed})")
        sys.setswitchinterval(SWITCH_SECONDS)
        for kind in (prose, fence, bullets):
            rate, late = asyncio.run(flood(kind(FLOOD)))
            print(f"{kind.__name__}: {rate:.0f} tokens a second, the screen {late:.2f} s later")


if __name__ == "__main__":
    main()
