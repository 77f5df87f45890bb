"""Where the live panel is: beside the conversation, under it, or away."""

from dataclasses import replace

from app.tui.panel import Panel
from tests.app.tui.conftest import Chat, Chatting
from tests.app.tui.test_snapshots import LIVE
from tests.fixtures.screen_text import screen_text
from tests.fixtures.scripted import ScriptedModel


async def resized(chat: Chat, width: int, height: int = 24) -> Panel:
    await chat.pilot.resize_terminal(width, height)
    await chat.until(lambda: chat.screen.size.width == width)
    await chat.pilot.pause()
    return chat.screen.query_one(Panel)


async def test_auto_follows_the_terminal_until_somebody_decides(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"]), (80, 24)) as chat:
        assert not chat.screen.query_one(Panel).display
        assert (await resized(chat, 110)).display
        assert not (await resized(chat, 109)).display
        await chat.pilot.press("f2")
        await chat.until(lambda: chat.screen.query_one(Panel).display)
        assert (await resized(chat, 60)).display
        await chat.pilot.press("f2")
        await chat.until(lambda: not chat.screen.query_one(Panel).display)
        assert not (await resized(chat, 200)).display


async def test_a_narrow_terminal_has_it_under_the_conversation(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"]), (40, 24)) as chat:
        await chat.ask("hello")
        await chat.pilot.press("f2")
        panel, transcript = chat.screen.query_one(Panel), chat.screen.transcript
        await chat.until(lambda: panel.size.height > 0)
        await chat.pilot.pause()
        assert transcript.region.width == 40
        assert transcript.region.height >= panel.region.height
        assert panel.region.y == transcript.region.bottom
        await resized(chat, 80)
        assert panel.region.x == transcript.region.right
        assert panel.region.height == transcript.region.height


async def test_a_lossy_answer_is_told_beside_its_speed(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"]), (120, 40)) as chat:
        panel = chat.screen.query_one(Panel)
        panel.show(replace(LIVE, lossy="lossy: ears 0.1"), "drafting on", 70.0)
        await chat.pilot.pause()
        assert "lossy: ears 0.1" in screen_text(chat.app)
        panel.show(LIVE, "drafting on", 70.0)
        await chat.pilot.pause()
        assert "lossy" not in screen_text(chat.app)
