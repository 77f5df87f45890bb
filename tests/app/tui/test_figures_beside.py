"""Figures of an answer stand beside its question, or below it where they would be out of sight."""

import re
from pathlib import Path
from threading import Event

import pytest
from textual.geometry import Offset
from textual.selection import Selection

from app.tui.chat.answer import GrowingMarkdown
from app.tui.chat.messages import PartView, QuestionView, text_width
from tests.app.tui.conftest import WORDS, Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

FIGURES = re.compile(r"\d+ tokens? · [\d.]+ s")
LONG = [f"line {number}\n\n" for number in range(40)]


def rows(chat: Chat) -> tuple[list[str], list[str]]:
    """Rows with figures that stand beside a question, and others."""
    found = [row for row in chat.shown.splitlines() if FIGURES.search(row)]
    return [row for row in found if "▌" in row], [row for row in found if "▌" not in row]


def question(chat: Chat) -> QuestionView:
    view = chat.view.transcript.views[0]
    assert isinstance(view, QuestionView)
    return view


async def test_they_move_to_the_question_at_the_end(chatting: Chatting) -> None:
    gate = Event()
    model = ScriptedModel(WORDS, gate=gate, holds_at=20)
    async with chatting(model, (100, 30), reads_ahead=False) as chat:
        await chat.say("one")
        await chat.until("word18")
        assert rows(chat) == ([], [])
        gate.set()
        await chat.until(lambda: len(rows(chat)[0]) == 1)
        (row,), others = rows(chat)
        assert not others
        edge = question(chat).region.right
        assert row.startswith(" ▌ one   ")
        assert len(row.rstrip()) == edge
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: "‹2/2›" in chat.shown and chat.view.is_idle)
        await chat.until(lambda: [len(found) for found in rows(chat)] == [0, 1])
        assert "‹2/2›" in rows(chat)[1][0]


@pytest.mark.slow
async def test_below_where_there_is_no_room_and_never_twice(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS[:9]), (120, 30)) as chat:
        await chat.ask("What did you change in it?")
        for width, beside in ((120, 1), (40, 0), (80, 1), (50, 0), (200, 1)):
            await chat.pilot.resize_terminal(width, 30)
            await chat.until(
                lambda beside=beside: [len(one) for one in rows(chat)] == [beside, not beside]
            )
            markdown = chat.screen.query_one(GrowingMarkdown)
            assert markdown.size.width == text_width(chat.view.size.width)
            part = chat.screen.query_one(PartView)
            assert part.size.width == markdown.size.width


async def test_below_an_answer_that_is_longer_than_the_screen(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(LONG), (100, 60)) as chat:
        await chat.ask("one")
        await chat.until(lambda: [len(found) for found in rows(chat)] == [0, 1])
        await chat.pilot.resize_terminal(100, 100)
        await chat.until(lambda: [len(found) for found in rows(chat)] == [1, 0])
        await chat.pilot.resize_terminal(100, 60)
        await chat.until(lambda: [len(found) for found in rows(chat)] == [0, 1])


async def test_they_are_not_selected_with_the_question(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS[:3])) as chat:
        await chat.ask("one")
        await chat.until(lambda: len(rows(chat)[0]) == 1)
        part = chat.screen.query_one(PartView)
        row = rows(chat)[0][0]
        y = chat.shown.splitlines().index(row)
        await chat.pilot.mouse_down(None, offset=Offset(3, y))
        await chat.pilot.hover(None, offset=Offset(row.index("tok/s"), y))
        await chat.pilot.mouse_up(None, offset=Offset(row.index("tok/s"), y))
        assert chat.screen.get_selected_text() == "one"
        chat.screen.selections = {part: Selection(None, None)}
        await chat.pilot.pause()
        assert chat.screen.get_selected_text() == "one"
        marked = chat.screen.get_component_rich_style("screen--selection").bgcolor

        def highlighted() -> str:
            return "".join(
                one.text for one in part.render_line(0) if one.style and one.style.bgcolor == marked
            )

        await chat.until(lambda: highlighted() == "one")


async def test_they_are_not_taken_for_the_size_of_a_file(
    chatting: Chatting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boat.txt").write_text("a boat")
    async with chatting(ScriptedModel(WORDS[:3])) as chat:
        await chat.ready()
        await chat.ask("What is in @boat.txt")
        await chat.until("▸ boat.txt · ")
        await chat.until(lambda: len(rows(chat)[0]) == 1)
        (row,), others = rows(chat)
        assert row.startswith(" ▌ What is in @boat.txt   ")
        assert not others


@pytest.mark.slow
async def test_they_stay_where_they_are_when_the_next_question_comes(chatting: Chatting) -> None:
    long = "What did you change in the second paragraph of it?"
    async with chatting(ScriptedModel(WORDS[:9]), (120, 36)) as chat:
        await chat.ask(long)
        await chat.until(lambda: len(rows(chat)[0]) == 1)
        assert chat.screen.store.is_panel_shown
        assert long in rows(chat)[0][0]
        await chat.ask("Why?")
        await chat.until(lambda: len(rows(chat)[0]) == 2)
        (first, second), others = rows(chat)
        assert long in first
        assert "tok/s" not in first + second
        assert others == []


@pytest.mark.parametrize(
    "end", ["stopped after 9 tokens · Ctrl+T continues", "the context is full"]
)
async def test_how_an_answer_ended_stands_below_it(chatting: Chatting, end: str) -> None:
    async with chatting(ScriptedModel(WORDS), (120, 30)) as chat:
        await chat.ready()
        chat.view.dialogue.add("user", "one")
        answer = chat.view.dialogue.add("assistant", "two")
        answer.ending = f"9 tokens · 1.0 s · {end}"
        await chat.view.show_turn(answer)
        await chat.until(end)
        assert [len(found) for found in rows(chat)] == [0, 1]
