"""Signals that ask the program to end: it ends in order, soon, and with the code of the signal."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from subprocess import Popen

import psutil
import pytest

from app.history import History
from app.paths import Paths
from app.tui.terminal import ExitSignals
from scripts.models.counting_model import numbers
from tests.app.conftest import PATIENCE_SECONDS, Launch, Terminal
from tests.fixtures.local_hub import LocalHub

pytestmark = pytest.mark.usefixtures("llamacpp")

OnTerminal = Callable[..., Terminal]

ENDLESS = ("--draft", "off", "--temperature", "0", "--max-tokens", "8000")
READY = "· CPU"
"""The model and its device, once it is loaded."""
LEFT = ("\x1b[?1049l", "\x1b[?1000l", "\x1b[?1003l", "\x1b[?2004l", "\x1b[?25h")
"""The other screen, the mouse and pasting are given back, and the cursor is shown."""

IGNORING_HANGUP = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
"""As nohup does."""

NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
asked_to_end = pytest.mark.parametrize(
    "number",
    [NUMBERS[0], *(pytest.param(one, marks=pytest.mark.nightly) for one in NUMBERS[1:])],
    ids=lambda one: one.name,
)
"""By one signal but at night: all do the same there."""


@pytest.fixture
def app(
    on_terminal: OnTerminal, counting: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Terminal]:
    """Opens the app."""
    monkeypatch.setenv("TERM", "xterm-256color")

    def start(first: str = "") -> Terminal:
        terminal = on_terminal("--model", counting, "--draft", "lookup", first=first)
        terminal.read_until(READY)
        return terminal

    return start


def modes(terminal: Terminal) -> int:
    return termios.tcgetattr(terminal.descriptor)[3]


def unsent() -> str:
    file = Paths.of_this_user().unsent
    return file.read_text(encoding="utf-8") if file.exists() else ""


def wait_for(holds: Callable[[], bool]) -> None:
    """Wait for what the app does beside its terminal."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end
        select.select([], [], [], 0.02)


def typed(terminal: Terminal, text: str) -> None:
    terminal.type(text)
    terminal.read_until(text[-4:])


@pytest.mark.slow
@asked_to_end
def test_the_app_keeps_what_is_typed_and_gives_the_terminal_back(
    app: Callable[[], Terminal], number: signal.Signals
) -> None:
    terminal = app()
    typed(terminal, "half a question")
    terminal.process.send_signal(number)
    code, shown = terminal.end()
    assert code == 128 + number
    assert [one for one in LEFT if one not in shown] == []
    assert "Traceback" not in shown
    assert unsent() == "half a question"
    assert modes(terminal) & termios.ICANON


@pytest.mark.slow
def test_the_app_keeps_what_was_answered_and_what_waits(app: Callable[[], Terminal]) -> None:
    terminal = app()
    terminal.type("tell me all\r")
    terminal.read_until("tok/s")
    terminal.type("and then\r")
    terminal.read_until("queued · 1")
    typed(terminal, "and more")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end()[0] == 128 + signal.SIGTERM
    assert unsent() == "and more"
    history = History.open(Paths.of_this_user().history)
    chat = history.chats()[0].number
    question, answer = history.messages(chat)
    assert [queued.text for queued in history.queue(chat)] == ["and then"]
    history.close()
    assert question.text == "tell me all"
    assert numbers(answer.text)
    assert "stopped after" in answer.ending


@pytest.mark.slow
def test_the_app_that_is_killed_keeps_what_rested_a_second(app: Callable[[], Terminal]) -> None:
    terminal = app()
    typed(terminal, "half a question")
    wait_for(lambda: unsent() == "half a question")
    terminal.process.kill()
    terminal.end()
    again = app()
    assert "half a question" in again.seen


@pytest.mark.slow
@pytest.mark.parametrize("ignored", [False, True], ids=["told", "not-told"])
def test_a_terminal_that_is_closed_ends_the_app(
    app: Callable[..., Terminal], *, ignored: bool
) -> None:
    terminal = app(IGNORING_HANGUP if ignored else "")
    typed(terminal, "half a question")
    terminal.close()
    code = terminal.process.wait(PATIENCE_SECONDS)
    assert code == (0 if ignored else 128 + signal.SIGHUP)
    assert unsent() == "half a question"


@pytest.mark.slow
def test_the_app_stops_and_comes_back(app: Callable[[], Terminal]) -> None:
    terminal = app()
    typed(terminal, "half a question")
    terminal.process.send_signal(signal.SIGTSTP)
    terminal.read_until(LEFT[0])
    os.waitpid(terminal.process.pid, os.WUNTRACED)
    assert modes(terminal) & termios.ICANON
    terminal.process.send_signal(signal.SIGCONT)
    terminal.read_until("\x1b[?1049h")
    terminal.read_until("half a question")
    typed(terminal, " and the rest")
    terminal.type("\x11")
    assert terminal.end()[0] == 0
    assert unsent() == "half a question and the rest"


def children(process: Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def begun(process: Popen[bytes], count: int = 12) -> bytes:
    """The first bytes that it prints; communicate() does not see what a buffer took beyond them."""
    assert process.stdout is not None
    shown = b""
    while len(shown) < count:
        shown += os.read(process.stdout.fileno(), count)
    return shown


@pytest.mark.slow
@asked_to_end
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_ask_ends_soon_and_prints_what_it_has(
    launch: Launch, counting: str, number: signal.Signals, options: tuple[str, ...]
) -> None:
    arguments = ("ask", "count", "--model", counting, *ENDLESS, *options)
    process = launch(*arguments, stdin=subprocess.DEVNULL)
    if options:
        wait_for(lambda: bool(children(process)))
        shown = b""
    else:
        shown = begun(process)
    helpers = children(process)
    process.send_signal(number)
    rest, err = process.communicate()
    assert process.returncode == 128 + number
    assert b"Traceback" not in err
    if not options:
        assert numbers((shown + rest).decode())
    assert psutil.wait_procs(helpers, timeout=PATIENCE_SECONDS)[1] == []


@pytest.mark.slow
@asked_to_end
def test_chat_that_is_piped_does_not_go_on_with_what_waits(
    launch: Launch, counting: str, number: signal.Signals
) -> None:
    process = launch("chat", "--model", counting, *ENDLESS)
    assert process.stdin is not None
    process.stdin.write(b"count\n/set max_tokens 5\ncount again\n")
    process.stdin.close()
    process.stdin = None
    shown = begun(process)
    process.send_signal(number)
    rest, err = process.communicate()
    assert process.returncode == 128 + number
    assert numbers((shown + rest).decode())[-1] > 5
    assert b"longest answer" not in err.lower()


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS[:2], ids=lambda one: one.name)
def test_chat_at_a_prompt_ends(
    on_terminal: OnTerminal, counting: str, number: signal.Signals
) -> None:
    terminal = on_terminal("chat", "--model", counting, *ENDLESS)
    terminal.read_until("> ")
    terminal.process.send_signal(number)
    code, shown = terminal.end()
    assert code == 128 + number
    assert "Traceback" not in shown
    assert modes(terminal) & termios.ICANON


@pytest.mark.slow
@asked_to_end
def test_tuning_ends_and_leaves_no_file_half_written(
    launch: Launch, counting: str, number: signal.Signals
) -> None:
    process = launch("models", "tune", counting, stdin=subprocess.DEVNULL)
    folder = Paths.of_this_user().self_drafts
    wait_for(lambda: folder.is_dir() and any(".partial" in path.name for path in folder.iterdir()))
    helpers = children(process)
    process.send_signal(number)
    _, err = process.communicate()
    assert process.returncode == 128 + number
    assert b"Traceback" not in err
    assert [path.name for path in folder.iterdir() if ".partial" in path.name] == []
    assert psutil.wait_procs(helpers, timeout=PATIENCE_SECONDS)[1] == []


@pytest.mark.slow
@asked_to_end
def test_a_download_ends_and_goes_on_the_next_time(
    launch: Launch, local_hub: LocalHub, number: signal.Signals
) -> None:
    local_hub.repositories["maker/Small-GGUF"] = {"Small-Q4_K_M.gguf": bytes(3_000_000)}
    local_hub.pause_at = 2_000_000
    process = launch("models", "pull", "maker/Small-GGUF", stdin=subprocess.DEVNULL)
    assert local_hub.paused.wait(PATIENCE_SECONDS)
    process.send_signal(number)
    _, err = process.communicate()
    assert process.returncode == 128 + number
    assert b"the downloaded part is kept" in err


@pytest.mark.slow
def test_a_signal_that_is_ignored_stays_so(launch: Launch, counting: str) -> None:
    arguments = ("ask", "count", "--model", counting, "--max-tokens", "30", "--temperature", "0")
    process = launch(*arguments, first=IGNORING_HANGUP, stdin=subprocess.DEVNULL)
    shown = begun(process)
    process.send_signal(signal.SIGHUP)
    rest, _ = process.communicate()
    assert process.returncode == 0
    assert len(numbers((shown + rest).decode())) == 30


STUCK = """
import ctypes

from app.cli.terminal.interrupt import end_signals

with end_signals():
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
    library.pthread_mutex_init(mutex, None)
    library.pthread_mutex_lock(mutex)
    print("stuck", flush=True)
    library.pthread_mutex_lock(mutex)
"""


@pytest.mark.slow
def test_native_code_that_does_not_come_back_is_left() -> None:
    command = [sys.executable, "-c", STUCK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"stuck\n"
        wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING)
        process.send_signal(signal.SIGTERM)
        try:
            _, err = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, err) == (128 + signal.SIGTERM, b"")


def test_a_signal_while_the_app_ends_changes_nothing_but_the_code() -> None:
    signals = ExitSignals()

    async def run() -> None:
        signals.on_signal(lambda: None)

    with signals.handled():
        asyncio.run(run())
        signal.raise_signal(signal.SIGTERM)
    assert signals.code == 128 + signal.SIGTERM
