"""How quick the app is: start, Enter, decode rate against `ask`, a long chat, a flood of tokens.

Run on a machine with nothing else to do: python -m scripts.measure_app [ROUNDS [PART ...]]
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
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from app.engine.engine import Engine
from app.history import History
from app.history.store import open_history
from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from app.settings.answering import Answering
from app.settings.in_effect import AppStart, Preferences
from app.tui.app import SWITCH_SECONDS, SpecchatApp
from app.tui.chat_screen import ChatScreen
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.scripted import ScriptedModel, opened

SPECCHAT = [sys.executable, "-m", "specchat"]
QUESTION = "Write a long story about a lighthouse."
TOKENS = 512
FLOOD = 20_000
MESSAGES = 5000
PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 3.0
"""Between two looks at the history: more often, and the looking would slow the model."""

PAINTED = b"sk anything"
READY = b"CPU"
CTRL_D = b"\x04"
CHANGED_BYTES = 500
"""More than a blink of the cursor writes."""


class Terminal:
    """The app in a pseudo-terminal."""

    def __init__(self, *options: str, columns: int = 120) -> None:
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(SPECCHAT[0], [*SPECCHAT, *options])
        size = struct.pack("HHHH", 36, columns, 0, 0)
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, size)
        self.shown = b""

    def write(self, data: bytes) -> None:
        os.write(self._file, data)

    def read(self, seconds: float = 0.02) -> bool:
        """Take what was painted, waiting for it a while; False once the app has ended."""
        if not select.select([self._file], [], [], seconds)[0]:
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

    def until_quiet(self, seconds: float = 1.0) -> None:
        """Wait until nothing has been painted for a while, or at most a few seconds."""
        begun = looked = time.monotonic()
        length = len(self.shown)
        while time.monotonic() - looked < seconds and time.monotonic() - begun < 5.0:
            self.read()
            if len(self.shown) > length:
                length, looked = len(self.shown), time.monotonic()

    @property
    def main_thread_seconds(self) -> float | None:
        """Processor time of the thread that paints; None where the system does not tell."""
        stat = Path(f"/proc/{self.pid}/task/{self.pid}/stat")
        if not stat.exists():
            return None
        values = stat.read_text().rpartition(")")[2].split()
        return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")

    def leave(self) -> float:
        """Quit; returns the seconds that took."""
        begun = time.perf_counter()
        self.write(CTRL_D)
        while self.read():
            pass
        os.waitpid(self.pid, 0)
        return time.perf_counter() - begun


def start() -> tuple[float, float, float]:
    """Seconds to the first paint, processor time of it, and seconds to quit."""
    begun = time.perf_counter()
    terminal = Terminal()
    terminal.until(PAINTED)
    painted, used = time.perf_counter() - begun, terminal.main_thread_seconds or 0.0
    terminal.until(READY)
    return painted, used, terminal.leave()


def enter() -> tuple[float, float, float]:
    """Seconds from Enter to a change of the screen, to the question on it, and to quit then."""
    terminal = Terminal()
    terminal.until(READY)
    terminal.until_quiet()
    terminal.write(QUESTION.encode())
    terminal.until_quiet(0.3)
    terminal.shown = b""
    begun = time.perf_counter()
    terminal.write(b"\r")
    while len(terminal.shown) < CHANGED_BYTES and terminal.read():
        pass
    changed = time.perf_counter() - begun
    terminal.until(QUESTION.encode())
    shown = time.perf_counter() - begun
    terminal.until(b"tok/s")
    return changed, shown, terminal.leave()


def asked(draft: str) -> float:
    """Tokens per second of `specchat ask`."""
    options = ["--json", "--draft", draft, "--temperature", "0", "--max-tokens", str(TOKENS)]
    command = [*SPECCHAT, "ask", *options, QUESTION]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)["stats"]["decode_tokens_per_second"]


def in_app(columns: int, draft: str) -> tuple[float, float]:
    """Tokens per second of the same answer in the app, and the share of a core for painting."""
    Paths.of_this_user().history.unlink(missing_ok=True)
    terminal = Terminal("--draft", draft, columns=columns)
    terminal.until(READY)
    terminal.until_quiet()
    used, begun = terminal.main_thread_seconds or 0.0, time.monotonic()
    terminal.write(QUESTION.encode() + b"\r")
    end = time.monotonic() + PATIENCE_SECONDS
    rate, looked_at = None, time.monotonic()
    while rate is None and time.monotonic() < end:
        terminal.read(LOOK_SECONDS)
        if time.monotonic() - looked_at >= LOOK_SECONDS:
            looked_at = time.monotonic()
            rate = _kept_rate()
    share = ((terminal.main_thread_seconds or 0.0) - used) / (time.monotonic() - begun)
    terminal.leave()
    assert rate is not None, "the answer did not end"
    return rate, share


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


def app_of(model: ScriptedModel, history: History | None = None) -> tuple[SpecchatApp, Engine]:
    """The app on a scripted model, with the panel open."""
    options = SessionOptions(draft="off")
    engine = Engine(options, Paths.of_this_user(), opened(model))
    answering = Answering(SamplingSettings(temperature=0.0), 100_000)
    preferences = Preferences(Path("none"), panel="shown")
    return SpecchatApp(engine, history, AppStart(options, "", answering, preferences)), engine


async def chat_screen(app: SpecchatApp) -> ChatScreen:
    """The screen, once the model is loaded."""
    while app.engine.status.loaded is None:
        await asyncio.sleep(0.05)
    screen = app.screen
    assert isinstance(screen, ChatScreen)
    return screen


async def flood(pieces: list[str]) -> tuple[float, float, float]:
    """A thousand tokens a second.

    Returns the producer's rate, the seconds the screen ends later, and the longest wait between
    two moments at which the screen could take a key.
    """
    app, engine = app_of(ScriptedModel(pieces, rate=1000.0, n_ctx=32768))
    async with app.run_test(size=(120, 36)):
        screen = await chat_screen(app)
        await screen.view.send("go")
        work = screen.view.pending
        assert work is not None
        ended, longest = None, 0.0
        while screen.view.pending is not None:
            begun = time.perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, time.perf_counter() - begun)
            if ended is None and work.answer.is_done:
                ended = time.perf_counter()
        late = time.perf_counter() - ended if ended is not None else 0.0
        rate = work.answer.metrics.decode_tokens_per_second if work.answer.metrics else None
    engine.close(5.0)
    return rate or 0.0, late, longest


SAVED = """A paragraph of **prose** that is long enough to wrap over the width of the screen, once.

- item one
- item two

```python
x = 1
print(x)
```
"""


async def long_chat() -> None:
    """Print how long a chat of many messages takes to open, and the longest frame of scrolls."""
    history = open_history(Paths.of_this_user())
    chat, number = history.create("demo"), 0
    for place in range(MESSAGES):
        role, text = ("assistant", SAVED) if place % 2 else ("user", f"question {place}")
        number = history.add(chat, role, text, parent=number)
    app, engine = app_of(ScriptedModel(["a", "b"], n_ctx=32768), history)
    async with app.run_test(size=(120, 36)):
        screen = await chat_screen(app)
        dialogue = screen.view.dialogue.fresh()
        begun = time.perf_counter()
        dialogue.open(chat)
        await screen.view.open(dialogue)
        print(f"{MESSAGES} messages: opened in {time.perf_counter() - begun:.2f} s")
        transcript = screen.view.transcript

        async def wheel() -> None:
            transcript.scroll_relative(y=-3, animate=False)

        async def page_up() -> None:
            transcript.scroll_page_up(animate=False)

        moves = (
            ("wheel", wheel, 40),
            ("Page Up", page_up, 10),
            ("Home", transcript.action_first, 1),
            ("End", transcript.action_last, 1),
        )
        for name, move, times in moves:
            wait, cpu = await longest_frame(move, times)
            print(f"{name}: longest frame {wait:.3f} s, {cpu:.3f} s of it at work")
    engine.close(5.0)
    history.close()


async def longest_frame(move: Callable[[], Awaitable[None]], times: int) -> tuple[float, float]:
    """The longest time without an answer to keys while scrolling, and its processor time."""
    frames: list[tuple[float, float]] = []

    async def watch() -> None:
        while True:
            begun, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            frames.append((time.perf_counter() - begun, time.thread_time() - used))

    watching = asyncio.create_task(watch())
    for _ in range(times):
        await move()
        await asyncio.sleep(0.1)
    watching.cancel()
    return max(wait for wait, _ in frames), max(cpu for _, cpu in frames)


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


def print_starts(rounds: int) -> None:
    """Print how quickly the app starts and quits."""
    start()  # fills the caches of a first start
    for _ in range(rounds):
        painted, used, quitted = start()
        print(f"first paint {painted:.2f} s ({used:.2f} s at work), quit {quitted:.2f} s")


def print_enters(rounds: int) -> None:
    """Print how quickly a question is on the screen, and how quickly an answer is left."""
    for _ in range(rounds):
        changed, shown, quitted = enter()
        print(
            f"Enter: first change after {1000 * changed:.0f} ms, the question after "
            f"{1000 * shown:.0f} ms; quit in mid-answer {quitted:.2f} s"
        )


def print_rate(columns: int, draft: str, rounds: int) -> None:
    """Print the app's decode rate as a ratio of that of `ask`; the two take turns."""
    ratios: list[float] = []
    shares: list[float] = []
    for _ in range(rounds):
        rate, share = in_app(columns, draft)
        ratios.append(rate / asked(draft))
        shares.append(share)
    listed = " ".join(f"{ratio:.2f}" for ratio in ratios)
    print(
        f"{columns} columns, drafting {draft}: {statistics.median(ratios):.2f} of ask "
        f"({listed}), painting takes {100 * statistics.median(shares):.1f} % of a core"
    )


def print_floods(rounds: int) -> None:
    """Print how the screen keeps up with a thousand tokens a second."""
    sys.setswitchinterval(SWITCH_SECONDS)
    for kind in (prose, fence, bullets) * rounds:
        rate, late, longest = asyncio.run(flood(kind(FLOOD)))
        print(
            f"{kind.__name__}: {rate:.0f} tokens a second, the screen {late:.2f} s later, "
            f"keys wait {longest:.2f} s at most"
        )


def print_long_chat(rounds: int) -> None:
    """Print how quickly a long chat opens and scrolls."""
    sys.setswitchinterval(SWITCH_SECONDS)
    for _ in range(rounds):
        asyncio.run(long_chat())


PARTS: dict[str, Callable[[int], None]] = {
    "start": print_starts,
    "enter": print_enters,
    "panel": partial(print_rate, 120, "off"),
    "no-panel": partial(print_rate, 100, "off"),
    "drafting": partial(print_rate, 120, "lookup"),
    "long-chat": print_long_chat,
    "flood": print_floods,
}


def main() -> None:
    """Print the figures of each part, or of those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=5)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    asked_for = parser.parse_args()
    unknown = set(asked_for.parts) - PARTS.keys()
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for name in asked_for.parts or PARTS:
        print(f"{name}, load {os.getloadavg()[0]:.1f}", flush=True)
        with own_home():
            PARTS[name](asked_for.rounds)


if __name__ == "__main__":
    main()
