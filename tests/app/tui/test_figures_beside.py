"""Figures of an answer stand beside its question, or below it where they would be out of sight."""

import re
from threading import Event

import pytest
from textual.geometry import Offset
from textual.selection import Selection

from app.tui.chat.answer import GrowingMarkdown
from app.tui.chat.messages import PartView, QuestionView, text_width
from app.tui.wording import is_figures
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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("132 tokens · 9.4 s · 14 tok/s · 1.4× plain ± 0.1 · 61 % drafted", True),
        ("the last 1 token · 2 min 3 s · 1,234 tok/s · even with plain ± 9 %", True),
        ("3 tokens · ▲ 8 % slower than plain ± 3 % · drafting paused · started after 3 s", True),
        ("10 tok/s · thinking ended at 500 tokens", True),
        ("", False),
        ("14 tok/s · stopped after 71 tokens · Ctrl+T continues", False),
        ("14 tok/s · cut at 9 tokens", False),
        ("132 tokens · 9.4 s · lossy: typical 0.3", False),
        ("the model gave no answer", False),
        ("132 tokens · 9.4 s · the context is full", False),
    ],
)  # fmt: skip
def test_what_are_figures_alone(line: str, expected: bool) -> None:
    assert is_figures(line) is expected
