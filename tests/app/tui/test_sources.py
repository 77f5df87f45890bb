"""The passages that were read for an answer: folded, cited, in the panel, and each in its place."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from textual.widgets import Collapsible
from textual.widgets._collapsible import CollapsibleTitle

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.sources import sources_of
from app.tui.chat.answer import AnswerView
from app.tui.chat.messages import AttachmentRow
from app.tui.screens.passage import PassageScreen, around
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.small_app import compare_screen, small_app

LINES = [f"line {number} of the plan\n" for number in range(1, 201)]
ANSWER = ["The quay opens at eight ", "[1]", ", and nine ", "[2]", " or ten ", "[7]", "; `[9]`."]


def passage(number: int, first: int, last: int) -> Attachment:
    name = f"[{number}] notes/plan.md, lines {first} to {last}"
    return Attachment(AttachmentKind.PASSAGE, name, "".join(LINES[first - 1 : last]))


ASKED = (passage(1, 100, 103), passage(2, 12, 14))


@pytest.fixture
async def asked(
    chatting: Chatting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Chat]:
    """A chat whose answer cites two passages of a file, and one that there is not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "plan.md").write_text("".join(LINES))
    async with chatting(ScriptedModel(ANSWER), size=(120, 36), toasts=True) as chat:
        await chat.ready()
        await chat.view.send("When does the quay open?", ASKED)
        await chat.until(lambda: len(chat.texts) == 2 and chat.view.is_idle)
        await chat.until("names no passage")
        yield chat


def passage_screen(chat: Chat) -> PassageScreen:
    return next(one for one in chat.app.screen_stack if isinstance(one, PassageScreen))


async def opened(chat: Chat) -> PassageScreen:
    await chat.until(lambda: isinstance(chat.app.screen, PassageScreen))
    await chat.app.workers.wait_for_complete()
    await chat.pilot.pause()
    return passage_screen(chat)


async def test_what_was_read_is_on_the_line_and_folded(asked: Chat) -> None:
    assert "2 passages of 1 file · ▲ [7] names no passage" in asked.shown
    assert asked.screen.query_one(Collapsible).collapsed
    await asked.pilot.press("tab")
    await asked.until("Tab citations")
    await asked.pilot.press("up")
    assert isinstance(asked.screen.focused, CollapsibleTitle)
    await asked.press("enter")
    await asked.until("[1] notes/plan.md, lines 100 to 103 ·")
    await asked.until("[2] notes/plan.md, lines 12 to 14 ·")
    await asked.pilot.press("down", "enter")
    screen = await opened(asked)
    assert "line 101 of the plan" in asked.shown
    assert "line 98 of the plan" in asked.shown  # scrolled to the passage
    assert "line 96 of the plan" not in asked.shown
    assert "line 104 of the plan" in asked.shown  # and what follows it
    screen.query_one("VerticalScroll").scroll_home(animate=False)
    await asked.until("line 1 of the plan")
    await asked.press("escape")
    assert isinstance(asked.screen.focused, AttachmentRow)


async def test_a_citation_opens_its_passage(asked: Chat) -> None:
    await asked.press("tab", "tab", "tab", "enter")
    screen = await opened(asked)
    assert "[2] notes/plan.md, lines 12 to 14" in asked.shown
    await asked.press("escape", "tab")  # past the last one
    assert not isinstance(asked.screen.focused, AnswerView)
    view = asked.screen.query_one(AnswerView)
    x = "".join(ANSWER[:1]).index("eight") + len("eight ") + 1
    await asked.pilot.click(view.markdown, offset=(x, 0))
    assert await opened(asked) is not screen
    assert "[1] notes/plan.md, lines 100 to 103" in asked.shown


async def test_enter_copies_where_no_citation_is_pointed_at(asked: Chat) -> None:
    await asked.press("tab", "tab", "shift+tab")  # before the first one
    assert isinstance(asked.screen.focused, CollapsibleTitle)
    await asked.press("tab", "enter")
    assert "answer" in asked.toasts


@pytest.mark.parametrize("fate", ["changed", "gone"])
async def test_a_passage_that_is_not_there_any_more_is_shown_as_it_was(
    asked: Chat, fate: str
) -> None:
    plan = Path("notes/plan.md")
    if fate == "gone":
        plan.unlink()
    else:
        plan.write_text("\n".join(LINES))
    source = sources_of(ASKED)[1]
    asked.screen.action_show_passage(source)
    await opened(asked)
    assert "as it was read" in asked.shown
    assert ("cannot be read" in asked.shown) == (fate == "gone")
    assert "line 101 of the plan" in asked.shown
    assert "line 104 of the plan" not in asked.shown


async def test_the_panel_names_them_and_opens_them(asked: Chat) -> None:
    asked.screen.store.is_panel_shown = True
    panel = asked.screen.panel
    await asked.until(lambda: "[1] plan.md, lines 100 to 103" in panel.text)
    panel.focus()
    while "notes/plan.md, lines 12 to 14" not in panel.help_text:
        await asked.press("down")
        assert panel.has_focus
    await asked.press("enter")
    await opened(asked)
    assert "[2] notes/plan.md, lines 12 to 14" in asked.shown
    await asked.press("escape")
    await asked.view.send("And on Sundays?")
    await asked.until(lambda: len(asked.texts) == 4 and asked.view.is_idle)
    await asked.until(lambda: "plan.md" not in panel.text)
    assert asked.view.line_of(asked.view.dialogue.turns[-1]).startswith("▲ [7] names no passage")


async def test_without_passages_nothing_is_a_citation(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(ANSWER)) as chat:
        await chat.ready()
        await chat.ask("When?")
        await chat.until("The quay opens")
        assert "passage" not in chat.shown
        await chat.press("tab")
        assert not chat.screen.query_one(AnswerView).markdown.citations


@pytest.mark.parametrize("size", [(100, 30), (40, 12)])
async def test_a_passage_in_its_place(
    size: tuple[int, int], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    (tmp_path / "plan.md").write_text("".join(LINES) + "\x1b[31mred\n")
    async with small_app(size) as shown:
        await shown.open(PassageScreen(sources_of(ASKED)[1], tmp_path / "plan.md"))
        await shown.until("line 97")
        width, height = size
        compare_screen(shown.app, f"passage_{width}x{height}", pytestconfig)
        await shown.press("end")
        await shown.until("␛[31mred")


def test_the_nearest_place_counts() -> None:
    text = "".join(["same\n"] * 3 + ["other\n"] + ["same\n"] * 3)
    (source,) = sources_of([Attachment(AttachmentKind.PASSAGE, "[1] a, line 6", "same\n")]).values()
    assert around(text, source) == ("same\nsame\nsame\nother\nsame\n", "\nsame\n")
    pages = "same\f" * 9
    name = "[1] a.pdf, page 4"
    (source,) = sources_of([Attachment(AttachmentKind.PASSAGE, name, "same")]).values()
    assert around(pages, source) == ("same\f" * 3, "\f" + "same\f" * 5)
    assert around("elsewhere", source) is None
