"""Several answers side by side: each is a version at once, one is picked, and nothing is lost."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from textual import events

from app.dialogue.tree import ASSISTANT
from app.history import History
from app.paths import Paths
from app.tui.chat.pending import PendingAnswer, Several
from app.tui.prompt.completion import Completion
from app.tui.screens.side_by_side import SideBySide
from models.stores import available_models
from tests.app.tui.conftest import ALL, Chat, Chatting
from tests.app.tui.conversation.test_chat_view import Held
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.small_app import compare_screen

VARIED = {"temperature": 0.5, "seed": 7}


@pytest.fixture
async def held(chatting: Chatting) -> AsyncIterator[tuple[Chat, Held]]:
    """A question that is answered, on a model that then waits after five pieces."""
    model = Held()
    async with chatting(model, (120, 24)) as chat:
        yield chat, model


async def answered(chat: Chat, model: Held) -> None:
    model.go()
    await chat.ready()
    await chat.ask("Which colours?")
    chat.view.dialogue.set_own(VARIED)
    model.hold()


def several(chat: Chat) -> Several:
    assert chat.view.several is not None
    return chat.view.several


def saved() -> list[str]:
    """All answers in the history."""
    history = History.open(Paths.of_this_user().history)
    (chat,) = history.chats()
    texts = [one.text for one in history.messages(chat.number) if one.role == ASSISTANT]
    history.close()
    return texts


async def written(chat: Chat) -> None:
    """Wait until an answer that is in progress has words."""
    await chat.until(lambda: any(one.turn.text for one in chat.view.growing))


@pytest.mark.slow
async def test_columns_become_tabs_where_the_window_is_narrowed(
    held: tuple[Chat, Held], pytestconfig: pytest.Config
) -> None:
    chat, model = held
    await answered(chat, model)
    await chat.say("/again 3")
    await written(chat)
    for size in [(120, 24), (80, 24), (40, 20)]:
        await chat.pilot.resize_terminal(*size)
        await chat.until(lambda: "word5█" in chat.shown and "1 · writing" in chat.shown)
        compare_screen(chat.app, f"side_by_side_{size[0]}x{size[1]}", pytestconfig)
    model.go()
    await chat.until("Esc back")


@pytest.mark.slow
async def test_each_is_saved_at_once_and_drawn_anew_and_one_is_picked(
    held: tuple[Chat, Held],
) -> None:
    chat, model = held
    await answered(chat, model)
    first = chat.view.dialogue.turns[-1]
    await chat.say("/again 3")
    await written(chat)
    await chat.until(lambda: chat.shown.count("· waiting") == 2)
    assert saved() == [ALL, several(chat).turns[0].text]
    await chat.view.send("next")  # waits until one is picked
    assert [one.answer.request.settings.seed for one in chat.view.growing] == [8, 9, 10]
    model.go()
    await chat.until("Esc back")
    assert saved() == [ALL] * 4
    assert [one.text for one in chat.view.dialogue.queue] == ["next"]
    turns = several(chat).turns
    await chat.press("3", "left", "enter")
    await chat.until(lambda: chat.app.screen is chat.screen)
    assert chat.view.dialogue.turns[1] is turns[1]
    assert chat.view.dialogue.versions(first) == [first, *turns]
    await chat.until(lambda: len(chat.view.dialogue.turns) == 4 and chat.view.is_idle)
    assert await chat.screen.changes.undo() == "regenerated an answer"
    assert chat.view.dialogue.turns[-1] is first
    assert await chat.screen.changes.redo() == "regenerated an answer"
    assert chat.view.dialogue.turns[1] is turns[1]  # the one that was picked
    assert await chat.screen.changes.undo() == "regenerated an answer"
    assert chat.view.dialogue.turns[-1] is first


@pytest.mark.parametrize(("more", "models"), [("", "other"), (" more", "other, scripted")])
async def test_what_goes_on_with_another_models_answer_is_named_beside_it(
    more: str, models: str, chatting: Chatting
) -> None:
    async with chatting(ScriptedModel(["One"])) as chat:
        await chat.ask("first")
        turn = chat.view.dialogue.turns[-1]
        assert turn.model
        own, turn.model = turn.model, "other"
        pending = PendingAnswer.of(chat.view.dialogue, turn, chat.view.answering)
        pending.answer.model = own
        if more:
            pending.answer.reply.text += more
        pending.follow()
        assert turn.model == models.replace("scripted", own)


@pytest.mark.slow
async def test_escape_stops_and_keeps_what_is_written_and_the_one_in_progress_goes_on_if_picked(
    held: tuple[Chat, Held],
) -> None:
    chat, model = held
    await answered(chat, model)
    await chat.say("/again 4")
    await written(chat)
    begun = several(chat).turns[0]
    await chat.press("escape")
    model.go()
    await chat.until(lambda: chat.app.screen is chat.screen)  # nothing to compare
    assert saved() == [ALL, begun.text]
    assert chat.view.dialogue.turns[-1] is begun
    model.hold()
    await chat.say("/again 4")
    await written(chat)
    growing = several(chat).turns[0]
    await chat.press("enter")
    await chat.until(lambda: chat.app.screen is chat.screen)
    model.go()
    await chat.idle()
    assert growing.text == ALL
    assert saved() == [ALL, begun.text, ALL]


@pytest.mark.slow
async def test_other_models_answer_and_the_chat_goes_on_with_its_own(
    held: tuple[Chat, Held], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, model = held
    await answered(chat, model)
    monkeypatch.setattr(type(chat.screen.commands), "_writer", lambda _, name: name)
    chat.app.engine.set_draft("lookup")
    await chat.say("/again other")
    await written(chat)
    await chat.until("1 · scripted")
    await chat.until("2 · other · writing")
    model.go()
    await chat.until("Esc back")
    assert [turn.model for turn in several(chat).turns] == ["scripted", "other"]
    await chat.until(lambda: chat.app.engine.draft == "lookup")
    await chat.press("2", "enter")
    await chat.until("other · 31 tokens")
    await chat.ready()
    await chat.ask("And now?")
    await chat.until("scripted · 31 tokens")  # as another model's name is there
    assert chat.view.dialogue.model == chat.view.dialogue.turns[-1].model == "scripted"
    await chat.say('/again broken other "third one"')
    await chat.until("Esc back")
    await chat.until("✕ broken cannot be loaded")
    assert [turn.model for turn in several(chat).turns] == ["other", "third one"]
    await chat.press("escape")
    await chat.until(lambda: chat.app.screen is chat.screen)
    assert "broken cannot be loaded" in chat.cards
    await chat.ready()
    await chat.ask("Still there?")
    assert chat.view.dialogue.turns[-1].text == ALL
    history = chat.view.dialogue.history
    assert history is not None
    assert chat.view.dialogue.chat is not None
    assert not Paths.of_this_user().last_model.exists()  # the next start has its own, too
    assert [one.model for one in history.messages(chat.view.dialogue.chat) if one.model] == [
        *("scripted", "other", "scripted", "other", "third one", "scripted")
    ]


REFUSED = [
    *[(typed, "1 to 4 answers") for typed in ("0", "50", "9" * 5000, "a b c d e")],
    ("nosuch", "no model nosuch"),
    ('nosuch "two words', "a quote is not closed"),
    ("qwen3-4b", "the model qwen3-4b is not on this machine · /model qwen3-4b downloads it"),
    ("2", "at temperature 0 a model's answers are all the same"),
]


async def test_what_cannot_be_is_told(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"]), (120, 24), keeps=False) as chat:
        await chat.ready()
        await chat.say("/again 2")
        assert "there is no question to answer yet" in chat.shown
        await chat.ask("hello")
        for typed, told in REFUSED:
            assert not await chat.screen.action_perform("regenerate", typed)
            await chat.until(told)
            assert chat.view.several is None
            assert chat.app.screen is chat.screen


async def test_a_chat_that_is_not_saved_and_an_answer_in_progress(chatting: Chatting) -> None:
    async with chatting(model := Held(), (80, 24), keeps=False, toasts=True) as chat:
        await chat.ready()
        chat.view.dialogue.set_own(VARIED)
        await chat.say("hello")
        await chat.until(lambda: bool(chat.view.dialogue.turns[-1:][0].text))
        await chat.say("/again 2")
        model.go()
        await chat.until("Esc back")
        assert isinstance(chat.app.screen, SideBySide)
        await chat.until("Stopped the answer in progress: it stays a version.")
        versions = chat.view.dialogue.versions(chat.view.dialogue.turns[-1])
        assert [one.text for one in versions][1:] == [ALL, ALL]  # what it had said is kept
        assert versions[0].text.startswith("word0")


async def test_what_is_typed_and_pasted_is_in_the_prompt(held: tuple[Chat, Held]) -> None:
    chat, model = held
    await answered(chat, model)
    await chat.say("/again 3")
    await written(chat)
    await chat.press("2", "1", "h", "i", "2")
    chat.app.screen.post_message(events.Paste(" there"))
    await chat.until("In the prompt: hi2 there")
    await chat.press("enter")
    await chat.until(lambda: chat.app.screen is chat.screen)
    assert chat.view.dialogue.turns[-1].text  # the first: the 2 was typed
    await chat.until(lambda: chat.prompt.text == "hi2 there")


async def test_names_with_spaces_are_completed_and_taken_with_and_without_quotes(
    held: tuple[Chat, Held], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, model = held
    await answered(chat, model)
    names = {"Second Model": Path("Second Model.gguf"), "other": Path("other.gguf")}
    monkeypatch.setattr(available_models, "known_names", lambda _: names)
    for typed in ("Second Model", '"Second Model"'):
        assert chat.screen.commands._names(typed) == ["Second Model"]
    assert chat.screen.commands._names('other "Second Model"') == ["other", "Second Model"]
    completion = chat.screen.query_one(Completion)
    for typed, to in (("sec", 0), ('"Second M', 0), ("other Se", 6), ('other "Second', 6)):
        completion.suggest(f"/again {typed}", "")
        assert completion.pick() == f'=/again {typed[:to]}"Second Model"'
