"""The app as a user meets it: the real program and the bundled model in a real terminal."""

import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from app.bench.suite import SUITES, tasks
from app.history import History
from app.paths import Paths
from tests.fixtures.tmux import Terminal, needs_tmux

pytestmark = [needs_tmux, pytest.mark.slow, pytest.mark.usefixtures("llamacpp")]

Open = Callable[..., Terminal]

READY = "Ask anything"
QUEUES = "it will be queued"
COPY = "Repeat this text exactly: "
LETTER = (
    "The weather here is often rainy, so it is wise to bring an umbrella when you come. From the "
    "station you walk along the river for ten minutes; our house is the one with the green door. "
)
STORY = "Tell a very long story about a lighthouse."
LOOKUP_HUE = "38;2;43;181;138"
"""The hue of lookup in the dark theme."""
_RGB = re.compile(r"[34]8;2;(\d+);(\d+);(\d+)")
_COMPARED = re.compile(r"× plain|even with plain|slower than plain")


@pytest.fixture
def terminal() -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_one(*arguments: str, tokens: int = 2048, **options: object) -> Terminal:
        variables = (f"SPECCHAT_MAX_TOKENS={tokens}", *options.pop("variables", ()))  # type: ignore[misc]
        opened.append(Terminal(arguments, variables, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def rows(table: str = "messages", columns: str = "*") -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(Paths.of_this_user().history)) as connection:
        return connection.execute(f"SELECT {columns} FROM {table}").fetchall()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run specchat with its output caught."""
    line = [sys.executable, "-m", "specchat", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=True, timeout=120)


def exported(folder: Path) -> str:
    """The newest chat as an export tells it."""
    number = json.loads(command("chats", "list", "--json").stdout)["chats"][0]["number"]
    path = folder / "chat.md"
    command("chats", "export", str(number), str(path), "--force")
    return path.read_text(encoding="utf-8")


def started(one: Terminal) -> str:
    """Wait for the model; returns the screen."""
    return one.until(lambda shown: "demo model" in shown.partition("\n")[0] and READY in shown)


def begun(one: Terminal) -> None:
    """Wait for an answer's figures; those of a welcome do not count."""
    one.until(lambda shown: QUEUES in shown and "tok/s" in shown and "Welcome" not in shown)


def answers(*, ended: bool = False) -> list[str]:
    """Texts of all saved answers; ended: only of those that have ended."""
    found = rows(columns="role, text, ending")
    return [
        str(text) for role, text, ending in found if role == "assistant" and (ending or not ended)
    ]


def until_answered(one: Terminal, count: int) -> str:
    """Wait until so many answers have ended; returns the screen."""
    return one.until(lambda shown: len(answers(ended=True)) >= count and QUEUES not in shown)


def asked(one: Terminal, question: str) -> str:
    """Ask a question and wait for the end of its answer."""
    count = len(answers(ended=True))
    one.ask(question)
    return until_answered(one, count + 1)


def test_versions(terminal: Open) -> None:
    one = terminal(tokens=24)
    started(one)
    asked(one, "Name a colour.")
    before = one.settled()
    one.press("F9")
    one.until(lambda shown: "editing: Enter adds version 2, Esc changes nothing" in shown)
    one.press("Escape")
    one.until(lambda shown: "editing" not in shown)
    one.until(lambda shown: shown == before)

    counts = [len(rows())]
    one.press("F9")
    one.until(lambda shown: "editing" in shown)
    one.write(" A dark one.")
    one.press("Enter")
    until_answered(one, 2)
    one.until(lambda shown: shown.count("‹2/2›") == 1)
    counts.append(len(rows()))
    for versions in (2, 3):
        one.press("C-r")
        until_answered(one, versions + 1)
        labels = 2 if versions == 2 else 1  # the question has two versions as well
        one.until(lambda shown, n=labels, v=f"‹{versions}/{versions}›": shown.count(v) == n)
        counts.append(len(rows()))
    assert all(before < after for before, after in pairwise(counts)), counts
    one.press("Tab")
    one.until(lambda shown: "Enter copy" in shown)
    for version in ("‹2/3›", "‹1/3›"):
        one.press("Left")
        one.until(lambda shown, v=version: v in shown)
    for version in ("‹2/3›", "‹3/3›"):
        one.press("Right")
        one.until(lambda shown, v=version: v in shown)
    one.settled()
    one.press("Escape")
    one.until(lambda shown: "Enter send" in shown)
    one.press("C-z")
    one.until(lambda shown: "‹2/3›" in shown)
    one.press("C-y")
    one.until(lambda shown: "‹3/3›" in shown)
    one.press("C-z")
    one.until(lambda shown: "‹2/3›" in shown)
    assert len(rows()) == counts[-1]
    one.kill_app()
    again = terminal("--continue")
    shown = again.until(lambda text: "‹2/3›" in text)
    assert "A dark one." in shown


@pytest.mark.parametrize("option", ["--model", "--draft"])
def test_a_wrong_name_opens_no_app(terminal: Open, option: str) -> None:
    one = terminal(option, "nosuch")
    shown = one.until(lambda text: "left with" in text)
    assert "left with 2" in shown
    assert shown.count("nosuch") == 1
    assert READY not in shown


def test_a_truncated_model_opens_the_app_with_one_card(
    terminal: Open, tmp_path: Path, demo_file: Path
) -> None:
    broken = tmp_path / "mine.gguf"
    with demo_file.open("rb") as whole:
        broken.write_bytes(whole.read(4_000_000))
    one = terminal("--model", str(broken))
    one.until(lambda text: "✕" in text)
    shown = one.settled()
    assert shown.count("✕") == 1
    assert shown.count("mine.gguf") == 1
    assert READY in shown


def test_small(terminal: Open) -> None:
    one = terminal(size=(40, 20))
    started(one)
    lines = one.until(lambda text: "F1 help" in text).splitlines()
    assert len(lines) == 20
    assert "demo model" in lines[0]
    assert lines[16].startswith("╭")
    assert lines[18].endswith("drafting: auto ─╯")
    assert "F1 help" in lines[19]
    one.press("C-l")
    shown = one.until(lambda text: "Models" in text and "demo" in text)
    names = [
        line.strip("│ ●▸▲") for line in shown.splitlines()[1:-2] if re.search(r"\d (GB|MB)\b", line)
    ]
    assert len(names) > 1
    assert all(re.match(r"[a-z]", name) for name in names), names


@pytest.mark.parametrize("panel", ["shown", "hidden"])
def test_a_figure_stands_once(terminal: Open, panel: str) -> None:
    one = terminal(size=(120, 36), variables=(f"SPECCHAT_PANEL={panel}",))
    started(one)
    one.ask(STORY)
    begun(one)
    counts = {one.shown.count("tok/s") for _ in range(20)}
    assert counts == {1}
    assert QUEUES in one.shown


@pytest.mark.parametrize("tokens", [40, 120])
@pytest.mark.parametrize("of", [5, pytest.param(1, marks=pytest.mark.nightly)])
def test_noise_is_no_figure(terminal: Open, tokens: int, of: int) -> None:
    """One of so many prompts of the bench, answered shortly and at length."""
    one = terminal(tokens=tokens, size=(120, 36))
    started(one)
    for task in tasks(SUITES["quick"])[::of]:
        count = len(answers(ended=True))
        one.press("C-n")
        one.until(lambda shown: "New chat" in shown)
        one.paste(task.text)
        one.until(lambda shown: READY not in shown)
        one.press("Enter")
        is_over = False
        while not is_over:
            is_over = len(answers(ended=True)) > count
            shown = one.shown
            assert re.search(r"\b0\.[0-9]+×", shown) is None, shown
            said = [line for line in shown.splitlines() if "this session" not in line]
            if tokens < 64:
                assert not _COMPARED.search("\n".join(said)), shown


def test_queue(terminal: Open) -> None:
    one = terminal(size=(80, 30))
    started(one)
    one.ask(STORY)
    begun(one)
    for number in (1, 2, 3):
        one.ask(f"Question number {number}?")
        one.until(lambda shown, n=number: f"queued · {n}" in shown)
    assert [text for (text,) in rows("queue", "text")] == [
        f"Question number {number}?" for number in (1, 2, 3)
    ]
    one.press("Up")
    one.until(lambda shown: "queued · 3" not in shown and "Question number 3?" in shown)
    one.press("Escape")
    one.until(lambda shown: "stopped after" in shown)
    shown = one.settled()
    assert "queued · 1" in shown
    assert "queued · 2" in shown
    one.press("C-c")
    one.until(lambda shown: "Question number 3?" not in shown)
    one.press("Enter")
    one.until(lambda shown: "queued · 2" not in shown and "Question number 1?" in shown)
    one.until(lambda _: len(rows()) == 4)
    one.press("Escape")
    one.until(lambda shown: QUEUES not in shown)
    assert rows("queue", "text") == [("Question number 2?",)]
    questions = [text for role, text in rows(columns="role, text") if role == "user"]
    assert questions == [STORY, "Question number 1?"]


def test_files_and_pastes(terminal: Open, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("The secret word is Zanzibar.\n" * 3, encoding="utf-8")
    one = terminal(tokens=4, size=(80, 30), folder=tmp_path)
    started(one)
    shown = asked(one, "What is in @notes.md ?")
    assert shown.count("notes.md ·") == 1
    assert "Zanzibar" not in shown
    count = len(rows())
    one.ask("And what is in @nosuch.md ?")
    one.until(lambda text: "no file nosuch.md · Enter again sends it anyway" in text)
    assert len(rows()) == count
    one.press("C-c")
    one.until(lambda text: "@nosuch" not in text)
    one.paste("\n".join(f"pasted line {n}" for n in range(50)))
    one.until(lambda text: "[pasted 50 lines]" in text)
    shown = asked(one, " is that long?")
    assert "pasted line 7" not in shown
    text = exported(tmp_path)
    assert [f"pasted line {n}" in text for n in range(50)] == [True] * 50


def test_the_end_of_a_long_line_of_code_is_visible(terminal: Open) -> None:
    line = "x = " + "value + " * 23 + "Zanzibar"
    with closing(History.open(Paths.of_this_user().history)) as history:
        chat = history.create("demo")
        history.add(chat, "user", "Code, please.")
        history.add(chat, "assistant", f"```python\n{line}\n```", "60 tokens")
    one = terminal("--continue")
    one.until(lambda text: "Zanzibar" in text)


def test_a_crash_and_company(terminal: Open) -> None:
    one = terminal()
    started(one)
    one.ask(STORY)
    begun(one)
    shown = one.until(lambda text: len(_answer_on(text)) > 100)
    one.kill_app()
    (saved,) = answers()
    assert _answer_on(shown) in " ".join(saved.split())

    again = terminal("--continue", tokens=40)
    again.until(lambda text: "interrupted · Ctrl+T continues" in text)
    started(again)
    again.press("C-t")
    shown = until_answered(again, 1)
    assert "interrupted" not in shown
    (whole,) = answers()
    assert whole.startswith(saved)
    assert len(whole) > len(saved)

    beside = terminal("--continue", tokens=40)
    started(beside)
    asked_at = time.monotonic()
    again.ask("Which word is Zanzibar?")
    beside.until(lambda text: "Which word is Zanzibar?" in text)
    print(f"seen beside after {time.monotonic() - asked_at:.1f} s")


def _answer_on(shown: str) -> str:
    """The words of the answer that a screen shows, but the last."""
    lines = shown.rpartition(STORY)[2].partition("╭")[0].splitlines()
    words = " ".join(line for line in lines if "tok/s" not in line and "plain" not in line).split()
    return " ".join(words[:-1])


_DRAFTING_PAYS = """
from specchat import main
from tests.fixtures.costs import cheap_drafting

with cheap_drafting():
    main()
"""
"""The app where drafting costs next to nothing, as on a busy machine it may be paused."""


def test_colour(terminal: Open) -> None:
    variables = ("COLORTERM=truecolor", "TERM=xterm-256color")
    one = terminal(
        "--draft", "lookup", size=(80, 30), variables=variables, program=("-c", _DRAFTING_PAYS)
    )
    started(one)
    one.press("F4")  # the hues stay: the answer, and they with it, might be over before a look
    one.until(lambda text: "stays coloured" in text)
    asked(one, COPY + LETTER * 3)
    one.until(lambda _: LOOKUP_HUE in one.styled)
    one.press("F4")
    one.until(lambda text: "fade again" in text)
    one.until(lambda _: LOOKUP_HUE not in one.styled)


def test_no_colour(terminal: Open) -> None:
    one = terminal(
        "--draft",
        "lookup",
        size=(80, 30),
        variables=("NO_COLOR=1",),
        program=("-c", _DRAFTING_PAYS),
    )
    started(one)
    one.press("F4")
    one.until(lambda text: "stays coloured" in text)
    asked(one, COPY + LETTER * 3)
    one.until(lambda _: re.search(r"\x1b\[(?:[0-9;]*;)?4m", one.styled))
    styled = one.styled
    assert all(len(set(rgb)) == 1 for rgb in _RGB.findall(styled))
    assert not re.search(r"\x1b\[(?:[0-9;]*;)?(?:3[1-6]|4[1-6]|9[1-6])m", styled)


def test_instructions_stay_with_their_chat(terminal: Open, tmp_path: Path) -> None:
    one = terminal(tokens=4)
    started(one)
    one.ask("/system Answer as a pirate.")
    one.until(lambda text: "instructions: Answer as a pirate." in text)
    asked(one, "Hello?")
    one.press("C-n")
    one.until(lambda text: "New chat" in text and "pirate" not in text)
    shown = asked(one, "And now?")
    assert "pirate" not in shown
    assert "instructions" not in shown
    text = exported(tmp_path)
    assert "And now?" in text
    assert "pirate" not in text


def test_the_first_minute(terminal: Open) -> None:
    one = terminal()
    shown = one.until(lambda text: "tiny demo model is ready" in text)
    offers = re.findall(r"^ +▸? *([\w.-]+) +[\d.]+ [GM]B +about \d+ tok/s", shown, re.MULTILINE)
    assert 1 <= len(offers) <= 3, shown
    started(one)
    one.write("some words")
    one.until(lambda text: "some words" in text)
    one.press("C-c")
    one.until(lambda text: "some words" not in text)
    one.press("F3")
    shown = one.until(lambda text: "Drafters for" in text)
    assert "lookup" in shown


def test_a_locked_file_is_told_once_and_written_later(terminal: Open) -> None:
    one = terminal(tokens=40)
    started(one)
    with closing(sqlite3.connect(Paths.of_this_user().history, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        one.ask("Hello there?")
        shown = one.until(lambda text: "not saved" in text)
        assert shown.count("not saved") == 1
        other.execute("ROLLBACK")
    one.until(lambda text: "not saved" not in text and len(answers(ended=True)) == 1)


def test_a_full_disk_is_told_once_and_the_chat_goes_on(terminal: Open) -> None:
    one = terminal(limits="ulimit -f 120;")
    started(one)
    one.ask(STORY)
    shown = one.until(lambda text: "not saved" in text)
    assert shown.count("not saved") == 1
    one.press("Escape")
    one.until(lambda text: "stopped after" in text)


def test_no_size_is_too_small(terminal: Open) -> None:
    one = terminal()
    started(one)
    one.ask(STORY)
    begun(one)
    for size in ((10, 3), (1, 1), (200, 60), (3, 40), (300, 2), (10, 3)):
        one.resize(*size)
        one.settled()
    one.write("still typed")
    one.resize(80, 24)
    one.until(lambda text: "still typed" in text and "lighthouse" in text)


def test_a_paste_of_megabytes_is_one_row(terminal: Open) -> None:
    one = terminal()
    started(one)
    one.paste("a line of text\n" * 200_000)
    one.until(lambda text: "[pasted 200,000 lines]" in text)
