"""The app as a user meets it: the real program and the bundled model in a real terminal."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.paths import Paths
from tests.fixtures.tmux import Terminal, needs_tmux

pytestmark = [needs_tmux, pytest.mark.slow, pytest.mark.usefixtures("llamacpp")]

Open = Callable[..., Terminal]

READY = "Ask anything"
COPY = "Repeat this text exactly:\n"
LETTER = (
    "The weather here is often rainy, so it is wise to bring an umbrella when you come. From the "
    "station you walk along the river for ten minutes; our house is the one with the green door."
)
GREEN = re.compile(r"\x1b\[[0-9;]*38;2;43;181;138")
"""The hue of lookup in the dark theme."""


@pytest.fixture
def terminal() -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_one(*arguments: str, **options: object) -> Terminal:
        opened.append(Terminal(arguments, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def rows(table: str = "messages") -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(Paths.of_this_user().history)) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run specchat with its output caught."""
    line = [sys.executable, "-m", "app.cli.entry", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)


def started(one: Terminal) -> None:
    one.until(lambda shown: READY in shown and "loading" not in shown)


def asked(one: Terminal, question: str) -> str:
    """Ask a question and wait for the end of its answer."""
    one.write(question)
    one.press("Enter")
    one.until(lambda shown: "will be queued" in shown)
    return one.until(lambda shown: READY in shown and "will be queued" not in shown)


def test_versions(terminal: Open) -> None:
    one = terminal("--max-tokens", "24", size=(80, 24))
    started(one)
    asked(one, "Name a colour.")
    before = one.settled()
    one.press("F9")
    one.until(lambda shown: "editing" in shown)
    one.press("Escape")
    one.until(lambda shown: "editing" not in shown)
    assert one.settled() == before

    count = len(rows())
    one.press("F9")
    one.until(lambda shown: "editing" in shown)
    one.write(" A dark one.")
    one.press("Enter")
    one.until(lambda shown: "‹2/2›" in shown and "will be queued" not in shown)
    assert len(rows()) > count
    for version in ("‹2/2›", "‹3/3›"):
        count = len(rows())
        one.press("C-r")
        one.until(lambda shown, v=version: shown.count(v) >= 1 and "will be queued" not in shown)
        assert len(rows()) > count
    one.until(lambda shown: "‹3/3›" in shown)
    one.press("C-z")
    one.until(lambda shown: "‹3/3›" not in shown)
    one.press("C-y")
    shown = one.until(lambda shown: "‹3/3›" in shown)
    one.kill_app()
    again = terminal("--continue", size=(80, 24))
    again.until(lambda text: "‹3/3›" in text)
    assert "A dark one." in shown


def test_wrong_names_open_no_app() -> None:
    for arguments in (("--model", "nosuch"), ("--draft", "nosuch")):
        one = Terminal(arguments)
        try:
            shown = one.until(lambda text: "left with 2" in text)
        finally:
            one.close()
        assert shown.count("nosuch") == 1
        assert READY not in shown


def test_a_truncated_model_opens_the_app_with_one_card(terminal: Open, tmp_path: Path) -> None:
    model = next(Paths.of_this_user().models.parent.rglob("*.gguf"), None) or _bundled()
    broken = tmp_path / "mine.gguf"
    with model.open("rb") as whole, broken.open("wb") as part:
        shutil.copyfileobj(_Limited(whole, 4_000_000), part)
    one = terminal("--model", str(broken), size=(80, 24))
    one.until(lambda text: "✕" in text)
    shown = one.settled()
    assert shown.count("✕") == 1
    assert shown.count("mine.gguf") == 1
    assert READY in shown


def test_small(terminal: Open) -> None:
    one = terminal(size=(40, 20))
    started(one)
    shown = one.settled()
    assert "F1 help" in shown.splitlines()[-1]
    one.press("C-l")
    shown = one.until(lambda text: "Models" in text and "demo" in text)
    names = [line.strip("│ ●▸▲") for line in shown.splitlines() if re.search(r"\d (GB|MB)", line)]
    assert names
    assert all(re.match(r"[a-z]", name) for name in names if "free" not in name), names


@pytest.mark.parametrize("panel", ["shown", "hidden"])
def test_a_figure_stands_once(terminal: Open, panel: str) -> None:
    variables = ("SPECCHAT_TEMPERATURE=0", f"SPECCHAT_PANEL={panel}")
    one = terminal("--max-tokens", "300", size=(120, 36), variables=variables)
    started(one)
    one.write(COPY.strip() + " " + LETTER)
    one.press("Enter")
    one.until(lambda text: "tok/s" in text)
    for _ in range(20):
        assert one.shown.count("tok/s") == 1


def test_noise_is_no_figure(terminal: Open) -> None:
    one = terminal("--max-tokens", "90", size=(120, 36))
    started(one)
    for question in ("Write about the sea.", "List ten animals.", COPY.strip() + " " + LETTER):
        one.write(question)
        one.press("Enter")
        one.until(lambda text: "will be queued" in text)
        while "will be queued" in (shown := one.shown):
            assert re.search(r"\b0\.[0-9]+×", shown) is None, shown


def test_queue(terminal: Open) -> None:
    one = terminal("--max-tokens", "400", size=(80, 30))
    started(one)
    one.write("Tell a very long story about a lighthouse.")
    one.press("Enter")
    one.until(lambda text: "will be queued" in text)
    for number in (1, 2, 3):
        one.write(f"Question number {number}?")
        one.press("Enter")
        one.until(lambda text, n=number: f"queued · {n}" in text)
    one.press("Up")
    one.until(lambda text: "queued · 3" not in text and "Question number 3?" in text)
    one.press("C-c")  # stops the answer first
    one.until(lambda text: "stopped" in text)
    shown = one.settled()
    assert "queued · 1" in shown
    assert "queued · 2" in shown
    one.press("C-c")
    one.until(lambda text: "Question number 3?" not in text)
    one.press("Enter")
    one.until(lambda text: "queued · 2" not in text)
    texts = str(rows())
    assert "Question number 1?" in texts


def test_files_and_pastes(terminal: Open, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("The secret word is Zanzibar.\n" * 3, encoding="utf-8")
    one = terminal("--max-tokens", "16", size=(80, 30), folder=tmp_path)
    started(one)
    shown = asked(one, "What does @notes.md say? ")
    assert "notes.md" in shown
    assert "The secret word" not in shown.split("What does")[1].split("notes.md ·")[0]
    count = len(rows())
    one.write("And @nosuch.md ")
    one.press("Enter")
    one.until(lambda text: "no file nosuch.md" in text)
    assert len(rows()) == count
    one.press("C-c")
    one.paste("\n".join(f"pasted line {n}" for n in range(50)))
    one.until(lambda text: "[pasted 50 lines]" in text)
    one.write(" is that long?")
    one.press("Enter")
    one.until(lambda text: "will be queued" in text)
    one.until(lambda text: "will be queued" not in text)
    exported = tmp_path / "chat.json"
    number = json.loads(command("chats", "list", "--json").stdout)["chats"][0]["number"]
    assert command("chats", "export", str(number), str(exported)).returncode == 0
    assert "pasted line 49" in exported.read_text(encoding="utf-8")


def test_a_crash_and_company(terminal: Open) -> None:
    one = terminal("--max-tokens", "600", size=(80, 24))
    started(one)
    one.write("Tell a very long story about a lighthouse.")
    one.press("Enter")
    one.until(lambda text: "tok/s" in text and "will be queued" in text)
    one.until(lambda _: any("assistant" in row and len(str(row)) > 200 for row in rows()))
    one.kill_app()
    again = terminal("--continue", "--max-tokens", "40", size=(80, 24))
    again.until(lambda text: "interrupted" in text)
    started(again)
    again.press("C-t")
    again.until(lambda text: "interrupted" not in text)
    again.until(lambda text: "will be queued" not in text)
    beside = terminal("--continue", size=(80, 24))
    started(beside)
    again.write("Which word is Zanzibar?")
    again.press("Enter")
    begun = time.monotonic()
    beside.until(lambda text: "Zanzibar" in text)
    assert time.monotonic() - begun < 30  # the other window polls each second; the machine is slow


def test_colour(terminal: Open) -> None:
    variables = ("SPECCHAT_TEMPERATURE=0", "COLORTERM=truecolor", "TERM=xterm-256color")
    one = terminal("--draft", "lookup", size=(80, 30), variables=variables)
    started(one)
    one.write(COPY.strip() + " " + LETTER * 3)
    one.press("Enter")
    one.until(lambda _: GREEN.search(one.styled))
    one.until(lambda text: "will be queued" not in text)
    one.until(lambda _: not GREEN.search(one.styled))


def test_no_colour(terminal: Open) -> None:
    one = terminal(
        "--draft", "lookup", size=(80, 30), variables=("SPECCHAT_TEMPERATURE=0", "NO_COLOR=1")
    )
    started(one)
    one.write(COPY.strip() + " " + LETTER * 3)
    one.press("Enter")
    one.until(lambda _: re.search(r"\x1b\[[0-9;]*\b4[;m]", one.styled))
    assert not GREEN.search(one.styled)


def test_instructions_stay_with_their_chat(terminal: Open, tmp_path: Path) -> None:
    one = terminal("--max-tokens", "16", size=(80, 24))
    started(one)
    one.write("/system Answer as a pirate.")
    one.press("Enter")
    one.until(lambda text: "instructions: Answer as a pirate." in text)
    asked(one, "Hello?")
    one.press("C-n")
    one.until(lambda text: "New chat" in text)
    shown = asked(one, "And now?")
    assert "pirate" not in shown
    number = json.loads(command("chats", "list", "--json").stdout)["chats"][0]["number"]
    exported = tmp_path / "chat.json"
    command("chats", "export", str(number), str(exported))
    assert "pirate" not in exported.read_text(encoding="utf-8")


def test_the_first_minute(terminal: Open) -> None:
    one = terminal("--offline", size=(80, 24))
    shown = one.until(lambda text: "tiny demo model" in text)
    started(one)
    one.write("some words")
    one.until(lambda text: "some words" in text)
    one.press("C-c")
    one.until(lambda text: "some words" not in text)
    one.press("F3")
    shown = one.until(lambda text: "Drafters for" in text)
    assert "lookup" in shown


def _bundled() -> Path:
    from models.reference import resolve

    return resolve("demo", Paths.of_this_user().models).path


class _Limited:
    """The beginning of a file."""

    def __init__(self, file: object, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = -1) -> bytes:
        size = self._left if size < 0 else min(size, self._left)
        data: bytes = self._file.read(size)  # type: ignore[attr-defined]
        self._left -= len(data)
        return data
