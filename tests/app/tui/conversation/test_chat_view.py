"""One chat on the screen: asking, versions, the queue, errors and what becomes of an answer."""

import re
from contextlib import closing
from threading import Event

import pytest
from textual.widgets import Static

from app.chat.attachments import Attachment, AttachmentKind
from app.dialogue.tree import ASSISTANT
from app.history import History
from app.paths import Paths
from app.tui.chat.answer import AnswerView
from app.tui.chat.lines import Card, QueueRow
from tests.app.tui.conftest import ALL, WORDS
from tests.app.tui.conversation.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel


class Held(ScriptedModel):
    """A model that holds every answer after so many pieces until the test lets it go on."""

    def __init__(self, after: int = 5) -> None:
        self._goes = Event()
        super().__init__(WORDS, gate=self._goes, holds_at=after)

    def go(self) -> None:
        self._goes.set()

    def hold(self) -> None:
        self._goes.clear()


def cards(chat: Chat) -> list[str]:
    return [card.text for card in chat.app.query(Card)]


def labels(chat: Chat) -> list[str]:
    return [row.state for row in chat.app.query(QueueRow)]


async def test_regenerating_adds_an_answer_and_can_be_undone(chat: Chat) -> None:
    assert "Everything runs on this machine." in chat.shown
    await chat.ask("hello")
    assert "Everything runs on this machine." not in chat.shown
    first = chat.messages[-1].turn
    await chat.view.regenerate()
    await chat.idle()
    second = chat.messages[-1].turn
    assert chat.view.dialogue.versions(second) == [first, second]
    assert "2/2" in chat.shown
    assert await chat.app.changes.undo() == "regenerated an answer"
    assert chat.messages[-1].turn is first
    await chat.app.changes.redo()
    assert chat.messages[-1].turn is second


async def test_editing_adds_a_question(chat: Chat) -> None:
    await chat.ask("one")
    await chat.ask("two")
    first = chat.messages[0].turn
    await chat.view.edit(first, "three")
    await chat.idle()
    assert chat.texts == ["three", ALL]
    await chat.view.show_version(chat.messages[0].turn, -1)
    assert chat.texts == ["one", ALL, "two", ALL]
    await chat.view.show_version(first, -1)
    assert chat.texts[0] == "one"


async def test_what_follows_an_edited_question_is_dimmed(chat: Chat) -> None:
    await chat.ask("one")
    await chat.ask("two")
    chat.view.edit_question(chat.messages[0].turn)
    await chat.pilot.pause()
    assert chat.app.edits == [chat.messages[0].turn]
    assert [m.has_class("-after-edited") for m in chat.messages] == [False, True, True, True]
    chat.app.store.edited = None
    await chat.pilot.pause()
    assert not any(m.has_class("-after-edited") for m in chat.messages)


@pytest.mark.slow
async def test_a_stopped_answer_stays_and_goes_on(chatting: Chatting) -> None:
    async with chatting(model := Held()) as chat:
        await chat.begin("hello")
        chat.view.stop()
        model.go()
        await chat.idle()
        part = chat.texts[-1]
        assert part
        assert ALL.startswith(part)
        assert "stopped" in chat.messages[-1].turn.ending
        await chat.view.continue_answer()
        await chat.idle()
        assert len(chat.messages) == 2
        assert chat.texts[-1] == ALL
        assert chat.view.dialogue.versions(chat.messages[-1].turn) == [chat.messages[-1].turn]


PARTS = ["😀", "\udcf0\udc9f", "\udc8e\udc89", "日", "!"]


@pytest.mark.parametrize("keeps_tokens", [True, False])
async def test_an_answer_that_was_cut_inside_a_character_goes_on_there(
    chatting: Chatting, keeps_tokens: bool
) -> None:
    """Without tokens it goes on after the last whole character, where this model begins anew."""
    async with chatting(ScriptedModel(PARTS)) as chat:
        chat.view.dialogue.set_own({"max_tokens": 2})
        await chat.ask("hello")
        turn = chat.messages[-1].turn
        assert turn.text == "😀"
        assert "cut at 2 tokens" in turn.ending
        turn.tokens = ()  # as if the chat was opened again
        if not keeps_tokens:
            history = chat.view.dialogue.history
            assert history is not None
            assert turn.number is not None
            assert history.tokens(turn.number) == (2, 3)
            history.keep_tokens(turn.number, ())
        chat.view.dialogue.set_own({})
        await chat.view.continue_answer()
        await chat.idle()
        assert turn.text == ("😀🎉日!" if keeps_tokens else "😀😀🎉日!")


@pytest.mark.slow
async def test_a_stopped_regeneration_shows_the_answer_before(chatting: Chatting) -> None:
    model = Held(after=0)
    model.go()
    async with chatting(model) as chat:
        await chat.ask("hello")
        model.hold()
        await chat.view.regenerate()
        chat.view.stop()
        model.go()
        await chat.until(lambda: chat.view.is_idle and chat.texts == ["hello", ALL])
        await chat.until(lambda: "2/2" not in chat.shown)
        assert chat.app.returned == []


@pytest.mark.slow
async def test_queued_questions_are_sent_in_turn(chatting: Chatting) -> None:
    async with chatting(model := Held()) as chat:
        await chat.begin("one")
        await chat.view.send("two")
        await chat.view.send("three")
        assert labels(chat) == ["queued · 1", "queued · 2"]
        model.go()
        await chat.until(lambda: len(chat.texts) == 6 and chat.view.is_idle)
        assert chat.texts == ["one", ALL, "two", ALL, "three", ALL]
        assert labels(chat) == []


@pytest.mark.slow
async def test_stopping_keeps_the_queue(chatting: Chatting) -> None:
    async with chatting(model := Held()) as chat:
        await chat.begin("one")
        for text in ("two", "three", "four"):
            await chat.view.send(text)
        taken = await chat.view.take_back()
        assert taken is not None
        assert taken.text == "four"
        chat.view.stop()
        model.go()
        await chat.idle()
        assert len(chat.texts) == 2
        assert labels(chat) == ["queued · 1", "queued · 2"]
        await chat.view.send_next()
        await chat.until(lambda: len(chat.texts) == 6 and chat.view.is_idle)
        assert chat.texts[2::2] == ["two", "three"]


@pytest.mark.slow
async def test_a_question_after_a_stop_does_not_overtake_the_queue(chatting: Chatting) -> None:
    async with chatting(model := Held()) as chat:
        await chat.begin("one")
        await chat.view.send("two")
        chat.view.stop()
        model.go()
        await chat.idle()
        await chat.view.send("three")
        await chat.until(lambda: len(chat.texts) == 6 and chat.view.is_idle)
        assert chat.texts[2::2] == ["two", "three"]


async def test_a_question_waits_for_a_model(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS), loads=False) as chat:
        await chat.view.send("hello")
        assert labels(chat) == ["waiting for a model"]
        chat.engine.start()
        await chat.until(lambda: len(chat.texts) == 2 and chat.view.is_idle)
        assert chat.texts == ["hello", ALL]
        chat.engine.close(10.0)


@pytest.mark.slow
async def test_an_error_is_one_card_below_the_answer(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS, fails_at=5)) as chat:
        await chat.ask("hello")
        assert chat.texts == ["hello", "".join(WORDS[:5])]
        assert cards(chat) == ["the engine failed: it was told to"]
        assert "Ctrl+T continues" in chat.shown
        assert "interrupted" not in chat.shown
        await chat.view.show_fault("another", "Ctrl+L chooses another")
        assert cards(chat) == ["another"]


@pytest.mark.slow
async def test_a_version_may_be_shown_while_another_is_answered(chatting: Chatting) -> None:
    async with chatting(model := Held()) as chat:
        model.go()
        await chat.ask("one")
        model.hold()
        await chat.view.edit(chat.messages[0].turn, "two")
        await chat.until(chat.has_begun)
        growing = chat.view.dialogue.turns[-1]
        await chat.view.show_version(chat.messages[0].turn, -1)
        assert chat.texts == ["one", ALL]
        model.go()
        await chat.idle()
        assert growing.text == ALL
        await chat.view.show_version(chat.messages[0].turn, 1)
        assert chat.texts == ["two", ALL]
        assert isinstance(chat.messages[-1], AnswerView)


async def test_editing_while_answering_keeps_both(chatting: Chatting) -> None:
    async with chatting(model := Held()) as chat:
        await chat.begin("one")
        first = chat.view.dialogue.turns[0]
        await chat.view.edit(first, "two")
        model.go()
        await chat.idle()
        assert chat.texts == ["two", ALL]
        assert first.children[0].text
        assert "stopped" in first.children[0].ending


async def test_a_summary_begins_a_new_chat(chat: Chat) -> None:
    await chat.ask("hello")
    old = chat.view.dialogue
    await chat.view.compact()
    await chat.idle()
    assert chat.view.dialogue is not old
    assert [turn.role for turn in chat.view.dialogue.turns] == ["user", ASSISTANT]
    assert "hello" in chat.texts[0]
    assert chat.texts[1] == ALL
    assert await chat.app.changes.undo() == "summarised a chat"
    assert chat.view.dialogue is old
    assert chat.texts == ["hello", ALL]


@pytest.mark.slow
async def test_a_stopped_summary_goes_back(chatting: Chatting) -> None:
    model = Held(after=0)
    model.go()
    async with chatting(model) as chat:
        await chat.ask("hello")
        old = chat.view.dialogue
        model.hold()
        await chat.view.compact()
        chat.view.stop()
        model.go()
        await chat.idle()
        assert chat.view.dialogue is old
        assert chat.app.returned == []


@pytest.mark.slow
async def test_selection_by_keys(chat: Chat) -> None:
    await chat.ask("one")
    await chat.ask("two")
    chat.view.select_last("user")
    await chat.pilot.pause()
    await chat.pilot.press("up", "up")
    assert chat.view.selected is chat.messages[0].turn
    await chat.pilot.press("enter")
    assert chat.app.edits == [chat.messages[0].turn]
    await chat.view.edit(chat.messages[0].turn, "three")
    await chat.idle()
    chat.messages[0].focus()
    await chat.pilot.pause()
    await chat.pilot.press("left")
    assert chat.texts[0] == "one"
    await chat.pilot.press("right")
    assert chat.texts == ["three", ALL]


async def test_the_newest_line_is_short_beside_the_panel(chat: Chat) -> None:
    await chat.ask("one")
    assert "tok/s" in chat.shown
    chat.app.store.is_panel_shown = True
    await chat.pilot.pause()
    assert "tok/s" not in chat.shown
    assert "31 tokens" in chat.shown


@pytest.mark.parametrize("size", [(10, 3), (1, 1)])
async def test_a_tiny_terminal_and_hostile_text(chatting: Chatting, size: tuple[int, int]) -> None:
    async with chatting(ScriptedModel(["\x1b[31m\u202ehi ", "漢字 "] * 20), size) as chat:
        await chat.ready()
        file = Attachment(AttachmentKind.PASTE, "\x1b]0;x\x07 [pasted]", "\u2066\x00" * 50)
        await chat.view.send("\x1b[2J\u202e" * 30 + "[bold]", (file,))
        await chat.view.send("\n[red]\x9b")
        await chat.until(lambda: len(chat.view.dialogue.turns) == 4 and chat.view.is_idle)
        assert "\x1b" not in chat.shown


async def test_what_the_screen_shows_of_a_growing_answer_is_saved(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS, rate=60.0)) as chat:
        await chat.begin("hello")
        with closing(History.open(Paths.of_this_user().history)) as another:
            while not chat.view.is_idle:
                shown = re.findall(r"word\d+", chat.shown)
                saved = another.messages(1)[-1].text.split()
                assert saved[: len(shown)] == shown
                await chat.pilot.pause(0.01)


async def test_the_panel_is_hidden_while_another_chat_is_being_opened(chat: Chat) -> None:
    await chat.ask("hello")
    shown = chat.view.dialogue
    chat.view.dialogue = shown.fresh()  # its messages are not on the screen yet
    chat.app.store.is_panel_shown = not chat.app.store.is_panel_shown
    await chat.pilot.pause()
    chat.view.dialogue = shown
    assert chat.texts == ["hello", ALL]


def outside(chat: Chat) -> list[bool]:
    return [message.has_class("-outside") for message in chat.messages]


@pytest.mark.slow
async def test_what_the_model_no_longer_sees_is_marked(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS, n_ctx=1024)) as chat:
        for number in range(2):
            await chat.ask(f"{number}" * 150)
        assert outside(chat) == [False] * 4
        assert not chat.app.query("#window")
        await chat.ask("3" * 150)
        forgotten = chat.view.dialogue.dropped
        assert 0 < forgotten < 6
        assert outside(chat) == [place < forgotten for place in range(6)]
        line = chat.app.query_one("#window", Static)
        shown = list(chat.view.transcript.children)
        assert shown[shown.index(line) + 1] is chat.messages[forgotten]


@pytest.mark.slow
async def test_the_next_prompts_begin_as_the_last_did(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS, n_ctx=1024)) as chat:
        while not chat.view.dialogue.dropped:
            await chat.ask("x" * 100)
        forgotten = chat.view.dialogue.dropped
        await chat.ask("y")
        assert chat.view.dialogue.dropped == forgotten
        answer = chat.view.answer
        assert answer is not None
        assert answer.metrics is not None
        assert answer.metrics.cached_prompt_tokens > 100


@pytest.mark.slow
async def test_another_version_brings_back_what_fits_again(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS, n_ctx=1024)) as chat:
        await chat.ask("first")
        await chat.view.edit(chat.messages[0].turn, "second")
        await chat.idle()
        while not chat.view.dialogue.dropped:
            await chat.ask("x" * 150)
        await chat.view.show_version(chat.view.dialogue.turns[0], -1)
        assert not any(outside(chat))
        assert not chat.app.query("#window")
