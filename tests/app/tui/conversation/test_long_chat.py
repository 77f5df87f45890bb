"""A chat of thousands of messages: only those near the view are mounted."""

import sqlite3

import pytest

from app.dialogue.dialogue import Dialogue
from app.history import History
from app.paths import Paths
from tests.app.tui.conversation.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

MESSAGES = 5000
MOST_MOUNTED = 80
SIZE = (120, 36)


def text_of(place: int) -> str:
    if place % 2 == 0:
        return f"question {place // 2}"
    return f"Answer {place // 2}.\n\n- one\n- two\n\n`code` and *more* text.\n\n```\nx = 1\n```"


@pytest.fixture
def long_chat() -> int:
    """Number of a saved chat with thousands of messages."""
    file = Paths.of_this_user().history
    history = History.open(file)
    dialogue = Dialogue(history)
    first = dialogue.add("user", text_of(0)).number
    history.close()
    assert first is not None
    assert dialogue.chat is not None
    rows = [
        (
            first + place, dialogue.chat, "assistant" if place % 2 else "user", text_of(place),
            "9 tokens" if place % 2 else "", first + place - 1,
            first + place + 1 if place + 1 < MESSAGES else 0,
        )
        for place in range(1, MESSAGES)
    ]  # fmt: skip
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("UPDATE messages SET shown = ? WHERE number = ?", (first + 1, first))
        connection.executemany(
            """INSERT INTO messages (number, chat, role, text, ending, created, parent, shown)
            VALUES (?, ?, ?, ?, ?, 0, ?, ?)""",
            rows,
        )
    connection.close()
    return dialogue.chat


def shown(chat: Chat) -> list[str]:
    """Texts of the messages that are in view."""
    transcript = chat.view.transcript
    return [view.turn.text for view in chat.messages if view.region.overlaps(transcript.region)]


@pytest.mark.slow
async def test_only_messages_near_the_view_are_mounted(chatting: Chatting, long_chat: int) -> None:
    async with chatting(ScriptedModel(["a"]), SIZE, chat=long_chat) as chat:
        transcript = chat.view.transcript
        assert len(chat.view.dialogue.turns) == MESSAGES
        assert len(chat.messages) <= MOST_MOUNTED
        assert shown(chat)[-1] == text_of(MESSAGES - 1)
        await transcript.action_first()
        await chat.until(lambda: shown(chat)[:1] == [text_of(0)])
        await transcript.action_last()
        await chat.until(lambda: shown(chat)[-1:] == [text_of(MESSAGES - 1)])


@pytest.mark.slow
async def test_a_scroll_mounts_no_more_than_comes_near(chatting: Chatting, long_chat: int) -> None:
    async with chatting(ScriptedModel(["a"]), SIZE, chat=long_chat) as chat:
        for _ in range(3):
            chat.view.transcript.scroll_relative(y=-3, animate=False)
            await chat.pilot.pause(0.1)
        oldest = chat.messages[0].turn
        assert chat.view.dialogue.turns.index(oldest) >= MESSAGES - 40


@pytest.mark.slow
async def test_scrolling_up_goes_through_every_message(chatting: Chatting, long_chat: int) -> None:
    async with chatting(ScriptedModel(["a"]), SIZE, chat=long_chat) as chat:
        transcript, seen = chat.view.transcript, list[str]()
        for direction in (-1, 1):
            seen.clear()
            for _ in range(20):
                seen += [text for text in shown(chat) if text not in seen]
                transcript.scroll_relative(y=direction * 20, animate=False, immediate=True)
                await chat.pilot.pause()
                await chat.pilot.pause()
            assert len(seen) > 20
            places = sorted(place for place in range(MESSAGES) if text_of(place) in seen)
            assert places == list(range(places[0], places[0] + len(seen)))
            assert len(chat.messages) <= MOST_MOUNTED


@pytest.mark.slow
async def test_what_is_in_view_stays_where_it_is(chatting: Chatting, long_chat: int) -> None:
    async with chatting(ScriptedModel(["a"]), SIZE, chat=long_chat) as chat:
        transcript = chat.view.transcript
        for _ in range(30):
            before = {view.turn: view.region.y for view in chat.messages}
            top = transcript.scroll_y
            transcript.scroll_relative(y=-3, animate=False, immediate=True)
            moved = top - transcript.scroll_y
            await chat.pilot.pause()
            await chat.pilot.pause()
            for view in chat.messages:
                if view.turn in before and view.region.overlaps(transcript.region):
                    assert view.region.y == before[view.turn] + moved
