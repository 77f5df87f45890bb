"""What the campaigns take from a terminal: whole pictures, and the answers in them."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.history import History
from scripts.campaigns.observed import PICTURE_END, Screen, Seen, faults, note


def shown(*written: bytes) -> list[str]:
    screen = Screen(6, 3)
    for part in written:
        screen.write(part)
    return screen.lines


def test_lines_follow_each_other() -> None:
    assert shown(b"\x1b[1;1Hone\r\ntwo\r\nthree" + PICTURE_END) == ["one", "two", "three"]


def test_a_part_is_painted_over_what_was_there() -> None:
    first, part = b"one\r\ntwo" + PICTURE_END, b"\x1b[2;2H\x1b[1mT\x1b[0m" + PICTURE_END
    assert shown(first, part) == ["one", "tTo", ""]


def test_a_picture_is_shown_once_it_has_come_whole() -> None:
    cut = b"\x1b[2;3Hxy" + PICTURE_END
    for place in range(len(cut)):
        assert shown(b"one" + PICTURE_END, cut[:place]) == ["one", "", ""]
        assert shown(b"one" + PICTURE_END, cut[:place], cut[place:]) == ["one", "  xy", ""]


def test_what_is_beyond_an_edge_is_not_shown() -> None:
    assert shown(b"\x1b[1;5Habcd\x1b[1;9Hx\x1b[4;1Hy" + PICTURE_END) == ["    ab", "", ""]


def noted(*lines: str) -> Seen:
    seen: Seen = {}
    note(lines, seen)
    return seen


def test_each_answer_belongs_to_the_question_above_it() -> None:
    seen = noted(
        " ▌ question x1x                      ‹1/2›",
        "   1 2 3 4",
        "   5 6 7",
        "                                     ‹2/3›",
        " ▌ question x2x question x3x",
        "   1 2█",
        "╭──────────",
        "│ question x4x",
    )
    assert seen == {("question x1x", 2): 7, ("question x3x", 0): 2}


def test_a_notice_above_an_answer_is_no_question() -> None:
    seen = noted("     ▌ Stopped the answer to “question x1x”.", "   700 701", "╭──")
    assert seen == {}


def test_a_question_that_a_notice_covers_is_not_known() -> None:
    seen = noted(" ▌ question x2x qu   ▌ Stopped the answer to “question x1x”.", "   1 2 3", "╭──")
    assert seen == {}


def test_what_the_prompts_frame_says_is_no_question() -> None:
    assert noted("╭─ ✕ question x1x ──", "   1 2 3", "╭──") == {}


def test_a_selected_answer_is_no_question() -> None:
    assert noted(" ▌ question x1x", " ▌ 1 2 3", "╭──") == {("question x1x", 0): 0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.sqlite3"


def keep(path: Path, *answers: str) -> None:
    history = History.open(path)
    chat = history.create("counting")
    question = history.add(chat, "user", "question x1x")
    for answer in answers:
        history.add(chat, "assistant", answer, parent=question)
    history.close()


def test_what_was_seen_and_is_not_saved_is_a_fault(path: Path) -> None:
    keep(path, "1 2 3", "1 2 3 4 5")
    assert list(faults(path, {("question x1x", 1): 3, ("question x1x", 0): 5}, "")) == []
    assert list(faults(path, {("question x1x", 1): 4}, "")) == [
        "of 'question x1x', version 1, 4 was seen, saved: [3]"
    ]
    assert list(faults(path, {("question x2x", 0): 0}, "")) == ["'question x2x' is lost"]
    assert list(faults(path, {("question x2x", 0): 0}, "question x2x")) == []


def test_an_answer_with_a_hole_is_a_fault(path: Path) -> None:
    keep(path, "1 2 3 6 7")
    assert list(faults(path, {}, "")) == ["an answer to 'question x1x' does not count: 2 3 6 7"]


# In a process of its own: this one has threads, with which it must not be forked.
SHOW_SIZE = """
import os
from scripts.campaigns import observed as forked

program = forked.start(lambda: print(*os.get_terminal_size(0)), ["size"], {})
program.wait()
print(program.shown().split() == [str(forked.COLUMNS), str(forked.ROWS)])
program.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
def test_a_terminal_has_its_size_before_the_program_begins() -> None:
    command = [sys.executable, "-c", SHOW_SIZE]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")
