"""Files and pastes of a question on the screen: each is one folded line, which can be selected."""

from pathlib import Path

import pytest
from PIL import Image
from rich.color import Color

from app.tui.chat.messages import AttachmentRow, _shown
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.tiny.projector import picture

OTHER_PROGRAMS = Path(__file__).parents[2] / "fixtures" / "other_programs"
PASTE = "a line\n" * 42


async def test_a_paste_is_one_line_where_it_stood(chat: Chat) -> None:
    await chat.ready()
    chat.prompt.text = "Summarise: "
    chat.prompt.move_cursor(chat.prompt.document.end)
    chat.prompt.paste(PASTE)
    chat.prompt.insert(" in one sentence")
    await chat.pilot.press("enter")
    await chat.until(lambda: len(chat.texts) == 2 and chat.view.is_idle)
    await chat.until("pasted 42 lines ·")
    assert "▸ pasted 42 lines" in chat.shown
    lines = [line.strip(" ▌") for line in chat.shown.splitlines()[1:] if "▌" in line]
    assert lines[0] == "Summarise:"
    assert lines[2].startswith("in one sentence   ")
    assert sum("pasted" in line for line in lines) == 1


async def test_a_selected_attachment_has_its_keys(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letter.md").write_text("Dear Ms Lindqvist")
    await chat.ready()
    await chat.ask("Correct @letter.md please")
    await chat.pilot.press("tab")
    await chat.until(lambda: chat.screen.store.selected == "assistant")
    assert "versions" not in chat.shown
    await chat.pilot.press("up")
    await chat.until(lambda: chat.screen.store.selected == "attachment")
    assert "Enter unfold" in chat.shown
    assert chat.screen.query_one(AttachmentRow).has_focus
    await chat.pilot.press("enter")
    await chat.until("Dear Ms Lindqvist")


async def test_pages_of_a_file_of_another_program_can_be_looked_at(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(OTHER_PROGRAMS)
    await chat.ready()
    await chat.ask("What do they need? @frogs.pdf")
    await chat.pilot.press("tab")
    await chat.until(lambda: chat.screen.store.selected == "assistant")
    await chat.pilot.press("up", "enter")
    await chat.until("Newts")
    (_, first, second) = chat.shown.split("── page ")
    assert "1 ──" in first
    assert "A frog needs 3 m² of water." in first
    assert "2 ──" in second
    assert "A newt needs 1 m²." in second


async def test_an_image_is_shown_in_blocks_of_its_colours(
    chatting: Chatting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    image = Image.new("RGB", (60, 90), "red")
    image.paste("blue", (0, 60, 60, 90))
    image.save("tall.webp", lossless=True)
    Path("broken.png").write_bytes(picture(1)[:60])
    async with chatting(ScriptedModel(["Yes."], sees=True), (80, 40)) as chat:
        await chat.ready()
        await chat.ask("What is @tall.webp and @broken.png?")
        tall, broken = chat.screen.query(AttachmentRow)
        await tall.action_unfold()
        await broken.action_unfold()
        await chat.until(lambda: chat.shown.count("▀" * 16) == 12)
        assert "▸" not in chat.shown
        lines = [line for line in chat.shown.splitlines() if "▀" in line]
        assert [line.strip(" ▌") for line in lines] == ["▀" * 16] * 12
        strips = [tall.query_one(".contents").render_line(row) for row in (0, 11)]
        for strip, colour in zip(strips, ((255, 0, 0), (0, 0, 255)), strict=True):
            styles = [segment.style for segment in strip if "▀" in segment.text]
            shown = {(style.color, style.bgcolor) for style in styles if style is not None}
            assert shown == {(Color.from_rgb(*colour), Color.from_rgb(*colour))}
        assert "PNG, 40 × 30 pixels" in str(broken.query_one(".contents").render())
        await tall.action_unfold()
        await chat.until(lambda: "▀" not in chat.shown)


def test_a_huge_attachment_is_laid_out_in_part() -> None:
    shown = _shown("x" * 200_000 + "yz").plain
    assert shown == "x" * 200_000 + "\n… 2 more characters"
