"""Signals that ask the program to end: it ends in order, soon, and with the code of the signal."""

import os
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from app.history import History
from app.paths import Paths
from tests.app.conftest import PATIENCE_SECONDS, Terminal

pytestmark = pytest.mark.usefixtures("llamacpp")

Launch = Callable[..., Popen[bytes]]
OnTerminal = Callable[..., Terminal]

ENDLESS = ("ask", "--raw", "one two one two one two one two", "--temperature", "0")
READY = "Ask something and press Enter"
LEFT = ("\x1b[?1049l", "\x1b[?1000l", "\x1b[?1003l", "\x1b[?2004l", "\x1b[?25h")
"""The other screen, the mouse and pasting are given back, and the cursor is shown."""

asked_to_end = pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda one: one.name
)


@pytest.fixture
def app(
    on_terminal: OnTerminal, tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Terminal]:
    """Opens the app with a small model that answers on and on."""
    monkeypatch.setenv("TERM", "xterm-256color")

    def start() -> Terminal:
        terminal = on_terminal("--model", str(tiny_llama()), "--draft", "lookup")
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


def test_the_app_keeps_what_was_answered_and_what_waits(app: Callable[[], Terminal]) -> None:
    terminal = app()
    terminal.type("tell me all\r")
    terminal.read_until("tok/s")
    terminal.type("and then\r")
    terminal.read_until("Sent when")
    typed(terminal, "and more")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end()[0] == 128 + signal.SIGTERM
    assert unsent() == "and then\n\nand more"
    history = History.open(Paths.of_this_user().history)
    question, answer = history.messages(history.chats()[0].number)
    history.close()
    assert question.text == "tell me all"
    assert answer.text
    assert answer.ending.endswith("stopped")


def test_the_app_that_is_killed_keeps_what_rested_a_second(app: Callable[[], Terminal]) -> None:
    terminal = app()
    typed(terminal, "half a question")
    wait_for(lambda: unsent() == "half a question")
    terminal.process.kill()
    terminal.end()
    again = app()
    assert "half a question" in again.seen


def test_two_apps_keep_what_is_typed_in_each(app: Callable[[], Terminal]) -> None:
    first, second = app(), app()
    typed(first, "one here")
    typed(second, "one there")
    for terminal in (first, second):
        wait_for(lambda: len(list(Paths.of_this_user().data.glob("unsent*.txt"))) == 2)
    third = app()
    assert "one" not in third.seen
    for terminal in (first, second, third):
        terminal.process.kill()
        terminal.end()
    last = app()
    assert "one here" in last.seen
    assert "one there" in last.seen


@pytest.mark.parametrize("ignored", [False, True], ids=["told", "not-told"])
def test_a_terminal_that_is_closed_ends_the_app(
    app: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch, *, ignored: bool
) -> None:
    if ignored:  # as nohup does
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    else:
        before = signal.getsignal(signal.SIGHUP)
    try:
        terminal = app()
    finally:
        signal.signal(signal.SIGHUP, before)
    typed(terminal, "half a question")
    terminal.close()
    code = terminal.process.wait(PATIENCE_SECONDS)
    assert code == (0 if ignored else 128 + signal.SIGHUP)
    assert unsent() == "half a question"


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
