"""The app, `ask` and `chat` on a real terminal with a real model whose answers would drive it."""

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.history import History
from app.paths import Paths
from app.printable import printable
from tests.fixtures.hostile import MARK, TEXTS
from tests.fixtures.hostile_model import write_hostile_model
from tests.fixtures.written import Written, by_app, by_command

pytestmark = pytest.mark.usefixtures("llamacpp")

OnTerminal = Callable[..., Any]

NAME = "evil\x1b]0;PWN\x07\x9b2J\u202e"
SHOWN = printable(NAME)
ESCAPE = "\x1b[27u"
"""The key as terminals with the newer keyboard protocol send it: no other can begin with it."""

GREEDY = ("--temperature", "0", "--max-tokens", "100", "--draft", "off")

RULE_OFF = """
import re
import app.printable as rule
rule.STAND_INS = {}
rule.STOPPED_IN_LINE = re.compile("(?!)")
rule.printable = rule.one_line = lambda text: text
from app.cli.main import main
main()
"""
"""The command without the rule, to show that these tests would find what it stops."""


CRASH = """
from app.cli.main import main
from app.tui.chat_screen import ChatScreen

def crash(self):
    raise ValueError("PWN \\x1b]0;PWN\\x07\\x9b2J[@click=app.quit]")

ChatScreen.on_mount = crash
main()
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Its answer is every hostile text; chats, files, presets and its own name are hostile too."""
    paths = Paths.of_this_user()
    paths.models.mkdir(parents=True)
    path = write_hostile_model(paths.models / f"{NAME}.gguf", TEXTS, NAME)
    with closing(History.open(paths.history)) as history:
        number = history.create(NAME, NAME)
        history.add(number, "user", NAME)
        history.add(number, "assistant", "".join(TEXTS), NAME)
        history.rename(number, f"old {NAME}")
    paths.config.mkdir(parents=True)
    preset = "evil\\u001b]0;PWN\\u0007"
    paths.settings.write_text(f'[presets."{preset}"]\nsystem = "{preset}"\n')
    (tmp_path / f"file {NAME}").write_text(NAME)
    return str(path)


@pytest.mark.slow
def test_ask(on_terminal: OnTerminal, model: str) -> None:
    terminal = on_terminal("ask", "hi", *GREEDY, "--model", model)
    code, _ = terminal.end()
    written = by_command(bytes(terminal.written))
    assert (code, written.strange) == (0, ())
    assert printable("".join(TEXTS)) in written.text.replace("\r", "")


@pytest.mark.slow
def test_chat(on_terminal: OnTerminal, model: str) -> None:
    terminal = on_terminal("chat", *GREEDY, "--model", model)
    terminal.read_until("> ")
    terminal.type("hi\n")
    terminal.read_until("> ")
    terminal.type("/nothing\n")
    terminal.read_until("> ")
    terminal.type("\x04")
    code, _ = terminal.end()
    written = by_command(bytes(terminal.written))
    assert (code, written.strange) == (0, ())
    assert printable("".join(TEXTS)) in written.text.replace("\r", "")
    assert SHOWN in written.text  # the greeting names the file


READY = "· CPU"
"""The model and its device, once it is loaded."""


def _go_through_the_app(terminal: Any) -> Written:
    """Open every screen, and wait on each for something that it shows."""

    def press(keys: str, text: str) -> None:
        for _ in range(40):  # a screen that is closing takes keys with it
            terminal.type(keys)
            if terminal.comes(text, 2.0):
                break
        terminal.read_until(text)

    terminal.read_until(READY)
    press("hi\r", " tokens · ")
    press("\x1b[15~", "Run one after the other")  # F5: the race
    terminal.read_until("word for word")
    terminal.type(ESCAPE)
    press("\x1bOP", "In the prompt")  # F1
    press(ESCAPE, "sk anything")
    press("\x0c", "On this machine")  # Ctrl+L: models
    press(ESCAPE, "sk anything")
    press("\x1b[19~", "This chat")  # F8: settings
    press(ESCAPE, "sk anything")
    press("\x1bOR", "Drafters for")  # F3
    press(ESCAPE, "sk anything")
    press("\x15@", "file evil")  # completion of names
    press(f"{ESCAPE}\x15", "sk anything")
    press(f"\x1b[200~pasted {NAME}\x1b[201~", "pasted")
    press("\x15", "sk anything")
    press("/model [@click=app.quit]PWN.gguf\r", "no file")  # an error
    press("\x15/nothing\r", "no /nothing")
    press("\x15", "sk anything")
    press("\x0f", "Search titles")  # Ctrl+O: chats
    terminal.type("old")
    press("\r", "harmless")
    terminal.type("\x11")
    code, _ = terminal.end()
    assert code == 0
    return by_app(bytes(terminal.written))


@pytest.fixture
def open_app(
    on_terminal: OnTerminal, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Starts the app on a terminal that can show it."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("SPECCHAT_TEMPERATURE", "0")
    monkeypatch.setenv("SPECCHAT_MAX_TOKENS", "100")
    options = ("--model", model, "--draft", "off")
    return lambda **more: on_terminal(*options, cwd=tmp_path, **more)


@pytest.mark.slow
def test_a_crash_of_the_app_is_one_sentence(open_app: Callable[..., Any]) -> None:
    app = open_app(command=(sys.executable, "-c", CRASH))
    code, _ = app.end()
    written = by_app(bytes(app.written))
    assert (code, written.strange) == (1, ())
    assert "an internal error" in written.text
    assert "Traceback" not in written.text
    assert "PWN" in (Paths.of_this_user().data / "last-error.txt").read_text()


@pytest.mark.slow
def test_the_app(open_app: Callable[..., Any]) -> None:
    written = _go_through_the_app(open_app())
    assert written.strange == ()
    assert written.text.count(MARK) > 5 * len(TEXTS)


@pytest.mark.slow
def test_without_the_rule_all_of_it_gets_through(
    open_app: Callable[..., Any], on_terminal: OnTerminal, model: str
) -> None:
    """What the other tests would find."""
    command = (sys.executable, "-c", RULE_OFF)
    asked = on_terminal("ask", "hi", *GREEDY, "--model", model, command=command)
    asked.end()
    assert len(by_command(bytes(asked.written)).strange) > len(TEXTS)
    app = open_app(command=command)
    app.read_until(READY)
    app.type("hi\r")
    app.read_until(" tokens · ")  # above the answer, which may not be painted yet
    app.type("\x1bOP")
    app.read_until("In the prompt")
    app.type(ESCAPE)
    app.read_until("sk anything")
    app.type("\x11")
    app.end()
    assert len(by_app(bytes(app.written)).strange) > len(TEXTS) / 2
