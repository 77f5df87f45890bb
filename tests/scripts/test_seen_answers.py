"""What the campaigns take from a screen, and what they miss in the history."""

from pathlib import Path

import pytest

from app.history import History
from scripts.campaigns.observed import Seen, faults, note


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
    assert list(faults(path, {}, "")) == [
        "an answer to 'question x1x' does not count: 2 3 6 7",
    ]
