"""Answers are written at once where the model can, also to a chat that was left; none is lost."""

from collections.abc import AsyncIterator
from threading import Event

import pytest

from app.dialogue.tree import Turn
from app.engine.answer import Answer
from app.engine.engine import Engine
from app.engine.side_by_side import SideBySide
from app.tui.chat.pending import PendingAnswer
from backends.base import Model
from tests.app.tui.conftest import ALL, WORDS, Chat, Chatting
from tests.app.tui.screens.test_side_by_side import VARIED, saved
from tests.app.tui.test_keys_and_a_real_model import chatting_on
from tests.app.tui.test_random_moments import of_history
from tests.fixtures.heard import hurry
from tests.fixtures.scripted import ScriptedModel


class Shared(ScriptedModel):
    """A model that writes several answers at once, and holds them all after five pieces."""

    def __init__(self, *, shares: bool = True) -> None:
        self.gate: Event = Event()
        super().__init__(WORDS, gate=self.gate, holds_at=5, shares=shares)


def endless() -> ScriptedModel:
    return ScriptedModel(WORDS * 400, rate=300.0, shares=True)


@pytest.fixture
async def held(chatting: Chatting) -> AsyncIterator[tuple[Chat, Shared]]:
    """A question that is answered, on a model that then holds."""
    model = Shared()
    async with chatting(model, (120, 24), toasts=True) as chat:
        model.gate.set()
        await chat.ready()
        await chat.ask("Which colours?")
        chat.view.dialogue.set_own(VARIED)
        model.gate.clear()
        yield chat, model


async def grown(chat: Chat, count: int) -> list[PendingAnswer]:
    """Wait until so many answers have words."""
    await chat.until(lambda: sum(bool(one.turn.text) for one in chat.view.growing) == count)
    return [*chat.view.growing]


def turns(chat: Chat) -> list[Turn]:
    assert chat.view.several is not None
    return chat.view.several.turns


async def test_all_grow_at_once_and_their_rate_is_told_as_what_it_is(
    held: tuple[Chat, Shared],
) -> None:
    chat, model = held
    await chat.say("/again 3")
    begun = await grown(chat, 3)
    await chat.until(lambda: chat.shown.count("· writing") == 3)
    assert "0 of 3 written · Which colours?" in chat.shown
    assert sorted(saved()) == sorted([ALL, *(one.turn.text for one in begun)])
    await chat.press("3")
    model.gate.set()
    await chat.until("Esc back")
    assert all(one.answer.reply.is_shared for one in begun)
    await chat.press("enter")
    await chat.until(lambda: chat.app.screen is chat.screen)
    assert chat.view.dialogue.turns[-1] is begun[2].turn
    assert "beside others" in begun[2].turn.ending
    assert chat.view.session.answers <= 1  # those at once tell no speedup
    assert saved() == [ALL] * 4
    await chat.ready()
    await chat.ask("And now?")
    assert "beside others" not in chat.view.dialogue.turns[-1].ending
    assert await chat.screen.changes.undo() == "regenerated an answer"


async def test_escape_stops_all_and_keeps_what_is_written(held: tuple[Chat, Shared]) -> None:
    chat, model = held
    await chat.say("/again 3")
    begun = await grown(chat, 3)
    await chat.press("escape")
    model.gate.set()
    await chat.until("Esc back")
    assert all(one.turn.ending.endswith("Ctrl+T continues") for one in begun)
    assert len(turns(chat)) == 3
    assert sorted(saved()) == sorted([ALL, *(one.turn.text for one in begun)])


async def test_the_one_that_is_picked_goes_on_and_the_others_are_kept(
    held: tuple[Chat, Shared],
) -> None:
    chat, model = held
    await chat.say("/again 3")
    first, picked, last = await grown(chat, 3)
    await chat.press("2", "enter")
    await chat.until(lambda: chat.app.screen is chat.screen)
    assert chat.view.growing == [picked]
    model.gate.set()
    await chat.idle()
    assert picked.turn.text == ALL
    assert picked.turn is chat.view.dialogue.turns[-1]
    assert sorted(saved()) == sorted([ALL, ALL, first.turn.text, last.turn.text])


async def test_an_answer_goes_on_in_a_chat_that_is_left_and_the_next_waits_for_it(
    chatting: Chatting,
) -> None:
    async with chatting(model := Shared(shares=False), (100, 24), toasts=True) as chat:
        await chat.ready()
        await chat.say("Of Italy?")
        (italy,) = await grown(chat, 1)
        await chat.press("ctrl+n")
        await chat.until(lambda: "The answer in “Of Italy?” goes on." in chat.toasts)
        await chat.say("Of Spain?")
        await chat.until("waiting for the answer in “Of Italy?”")
        await chat.press("escape")  # takes it back
        await chat.until(lambda: chat.prompt.text == "Of Spain?" and chat.view.is_idle)
        await chat.press("enter")
        model.gate.set()
        await chat.until(lambda: "The answer in “Of Italy?” is written." in chat.toasts)
        await chat.until(lambda: chat.texts == [("user", "Of Spain?"), ("assistant", ALL)])
        await chat.screen.action_perform("chats", str(italy.dialogue.chat))
        await chat.until(lambda: chat.texts == [("user", "Of Italy?"), ("assistant", ALL)])


async def test_two_chats_are_answered_at_once_and_escape_stops_that_which_is_shown(
    chatting: Chatting,
) -> None:
    async with chatting(endless()) as chat:
        await chat.ready()
        await chat.say("Of Italy?")
        (italy,) = await grown(chat, 1)
        await chat.press("ctrl+n")
        await chat.until(lambda: not chat.view.dialogue.turns)
        await chat.say("Of Spain?")
        await grown(chat, 2)
        await chat.press("escape")
        await chat.until(lambda: chat.view.growing == [italy])
        assert chat.view.is_idle
        assert not italy.answer.is_stopped
        chat.app.engine.load("scripted")  # stops all
        await chat.until(lambda: not chat.view.growing)
        assert italy.turn.ending.endswith("Ctrl+T continues")


async def test_a_chat_is_opened_again_while_its_answer_grows(held: tuple[Chat, Shared]) -> None:
    chat, model = held
    await chat.say("And now?")
    (growing,) = await grown(chat, 1)
    await chat.press("ctrl+n")
    await chat.until(lambda: not chat.view.dialogue.turns)
    assert chat.view.is_idle
    await chat.screen.action_perform("chats", str(growing.dialogue.chat))
    assert chat.view.pending is growing
    await chat.press("escape")
    model.gate.set()
    await chat.idle()
    assert growing.turn.ending.endswith("Ctrl+T continues")


async def test_what_fails_in_a_chat_that_was_left_is_told_and_its_question_stays(
    chatting: Chatting,
) -> None:
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate, fails_at=0), toasts=True) as chat:
        await chat.ready()
        await chat.say("Of Italy?")
        await chat.until(lambda: not chat.view.is_idle)
        left = chat.view.dialogue
        await chat.press("ctrl+n")
        await chat.until(lambda: not chat.view.dialogue.turns)
        gate.set()
        await chat.until(lambda: "The answer in “Of Italy?” ended: the engine" in chat.toasts)
        assert [one.text for one in left.turns] == ["Of Italy?"]
        assert chat.prompt.text == ""


async def test_a_chat_that_is_removed_while_its_answer_grows_stays_removed(
    chatting: Chatting,
) -> None:
    async with chatting(endless(), (100, 24), toasts=True) as chat:
        await chat.ready()
        await chat.say("Of Italy?")
        (italy,) = await grown(chat, 1)
        history, number = italy.dialogue.history, italy.dialogue.chat
        assert history is not None
        assert number is not None
        await chat.press("ctrl+n")
        await chat.until(lambda: not chat.view.dialogue.turns)
        await chat.press("ctrl+o")
        await chat.until("Of Italy?")
        await chat.press("delete")
        await chat.until(lambda: not chat.view.growing)
        assert italy.answer.is_stopped
        assert not history.chats()
        assert "is written" not in chat.toasts
        await chat.press("ctrl+z")
        await chat.until(lambda: bool(history.chats()))
        assert history.messages(number)[1].text == italy.turn.text != ""


async def test_all_that_grow_are_saved_at_the_end(chatting: Chatting) -> None:
    async with chatting(endless(), (100, 24)) as chat:
        await chat.ready()
        await chat.say("Of Italy?")
        await grown(chat, 1)
        await chat.press("ctrl+n")
        await chat.until(lambda: not chat.view.dialogue.turns)
        await chat.say("Of Spain?")
        await grown(chat, 2)
        chat.view.dialogue.set_own(VARIED)
        await chat.say("/again 2")
        begun = await grown(chat, 3)
    assert all(one.turn.ending for one in begun)
    assert {one.turn.text for one in begun} <= {*of_history()[1]}


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
async def test_the_bundled_model_writes_three_at_once(
    demo: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    # What is measured in a hurry may tell that fewer at once are better.
    monkeypatch.setattr(SideBySide, "_most_at_once", 4)
    async with chatting_on(demo.info.path, 30) as chat:
        await chat.ask("Why is the sky blue?")
        chat.view.dialogue.set_own(VARIED)
        asked, begin = list[Answer](), Engine.begin
        monkeypatch.setattr(
            Engine, "begin", lambda engine, one: [asked.append(one), begin(engine, one)]
        )
        await chat.say("/again 3")  # they may be written before it is known to be sent
        await chat.until("Esc back")
        begun = turns(chat)
        assert len(begun) == len(asked) == 3
        assert all(one.reply.is_shared for one in asked)
        assert all(one.text for one in begun)
        assert {"beside others" in one.ending for one in begun} == {True}
        await chat.press("2", "enter")
        await chat.until(lambda: chat.app.screen is chat.screen)
        assert chat.view.dialogue.turns[-1] is begun[1]
