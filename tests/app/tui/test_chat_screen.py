"""Talking to the app: answers stream, stop, fail, are asked again, and nothing typed is lost."""

import asyncio
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from textual.events import Key

from app.engine.status import Phase
from app.history import History
from app.paths import Paths
from app.tui.chat.answer import GrowingMarkdown
from app.tui.chat.messages import QuestionView
from app.tui.chat.transcript import Transcript
from app.tui.chat_screen import ChatScreen
from app.tui.lists import Dialog
from app.tui.screens.chats import ChatsScreen
from app.tui.screens.drafters import DraftersScreen
from app.tui.screens.models import ModelsScreen
from tests.app.tui.conftest import ALL, WORDS, Chat, Chatting
from tests.fixtures.screen_text import screen_text, settled_text
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.small_app import PATIENCE_SECONDS


async def test_a_question_is_answered_whole(chat: Chat) -> None:
    await chat.ask("hello")
    assert chat.texts == [("user", "hello"), ("assistant", ALL)]
    assert "word28 word29" in chat.shown
    assert "31 tokens" in chat.view.dialogue.turns[1].ending
    assert chat.prompt.text == ""


async def test_what_was_told_in_the_chat_covers_no_row_of_another_screen(
    chatting: Chatting,
) -> None:
    async with chatting(ScriptedModel(WORDS), (60, 20), toasts=True) as chat:
        await chat.ready()
        await chat.pilot.press("f4")
        await chat.until("Drafted text stays coloured.")
        await chat.pilot.press("f3")
        await chat.until(lambda: "Drafters" in chat.shown and chat.app.screen is not chat.screen)
        await chat.until(lambda: "Drafted text stays coloured." not in chat.shown)
        assert "the free ones, others if they pay" in chat.shown


async def test_a_key_that_the_screen_got_is_meant_for_the_prompt(chat: Chat) -> None:
    """As of keys that were typed before the first picture."""
    assert chat.screen.focused is chat.prompt
    chat.screen._forward_event(Key("x", "x"))
    await chat.until(lambda: chat.prompt.text == "x")


@pytest.mark.slow
async def test_escape_stops_an_answer_and_keeps_what_was_said(chatting: Chatting) -> None:
    model = ScriptedModel(WORDS * 200, rate=300.0)
    async with chatting(model) as chat:
        await chat.say("go on")
        await chat.until(lambda: len(chat.texts) == 2 and len(chat.texts[1][1]) > 50)
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.view.pending is None)
        assert chat.texts[1][1].startswith("word0 word1 ")
        assert "stopped" in chat.view.dialogue.turns[1].ending
        await chat.say("and at once again")
        await chat.until(lambda: len(chat.texts) == 4 and len(chat.texts[3][1]) > 50)
        assert model.most_at_once == 1


@pytest.mark.slow
async def test_escape_while_the_prompt_is_read(chatting: Chatting) -> None:
    gate = Event()
    model = ScriptedModel(WORDS, gate=gate)
    async with chatting(model) as chat:
        await chat.until(lambda: chat.app.engine.status.phase is Phase.READY)
        await chat.say("x" * 3000)
        await chat.until(lambda: model.passes > 0)
        await chat.pilot.press("escape")
        gate.set()
        await chat.until(lambda: chat.view.pending is None)
        assert model.passes < 4
        await chat.ask("again")
        assert chat.texts[-1] == ("assistant", ALL)


async def test_a_question_that_got_no_word_comes_back_to_the_prompt(
    chatting: Chatting, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("all I know")
    asked = f"precious words on @{tmp_path / 'notes.txt'}"
    async with chatting(ScriptedModel(WORDS, fails_at=0)) as chat:
        await chat.say(asked)
        await chat.until(lambda: bool(chat.cards))
        await chat.until(lambda: chat.prompt.text == asked and chat.view.pending is None)
        assert chat.view.dialogue.turns == []
        await chat.until(lambda: chat.texts == [])
        assert "the engine failed" in chat.cards


async def test_stopped_before_the_first_word_the_question_comes_back(chatting: Chatting) -> None:
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate)) as chat:
        await chat.ready()
        await chat.say("too early")
        chat.prompt.text = "typed since"
        await chat.pilot.press("escape")
        gate.set()
        await chat.until(lambda: chat.view.pending is None and chat.prompt.text != "typed since")
        assert chat.prompt.text == "too early\n\ntyped since"
        await chat.until(lambda: chat.texts == [])
        await chat.idle()


async def test_a_question_that_comes_back_during_an_edit_leaves_the_edit(
    chatting: Chatting,
) -> None:
    gate = Event()
    gate.set()
    async with chatting(ScriptedModel(WORDS, gate=gate), reads_ahead=False) as chat:
        await chat.ask("first")
        gate.clear()
        await chat.say("second")
        await chat.until(lambda: not chat.view.is_idle)
        chat.view.edit_question(chat.view.dialogue.turns[0])
        await chat.until(lambda: chat.prompt.text == "first")
        chat.view.stop()
        gate.set()
        await chat.until(lambda: chat.view.is_idle and len(chat.texts) == 2)
        await chat.idle()
        assert chat.prompt.text == "first"
        await chat.pilot.press("escape")
        assert chat.prompt.text == "second"


async def test_keys_that_come_at_once_act_in_their_order(chat: Chat) -> None:
    for keys, text in (
        (("a", "b", "c", "backspace", "d"), "abd"),
        (("a", "b", "left", "X"), "aXb"),
        (("b", "c", "home", "a"), "abc"),
        (("o", "n", "e", "ctrl+u", "t", "w", "o"), "two"),
    ):
        chat.prompt.clear()
        for key in keys:
            chat.app.post_message(Key(key, key if len(key) == 1 else None))
        await chat.until(lambda text=text: chat.prompt.text == text)


async def test_what_is_typed_in_the_conversation_goes_to_the_prompt(chat: Chat) -> None:
    await chat.ask("hello")
    await chat.pilot.click(Transcript)
    await chat.pilot.press("n", "o", "w")
    assert chat.prompt.text == "now"
    assert chat.prompt.has_focus


async def test_a_command_in_one_burst_runs_while_a_message_is_selected(chat: Chat) -> None:
    await chat.ask("hello")
    chat.view.select_last("user")
    await chat.pilot.pause()
    for key in (*"/find", "enter"):
        chat.app.post_message(Key(key, key if len(key) == 1 else None))
    await chat.until("Find in this chat")
    await chat.until(lambda: chat.prompt.text == "" and not chat.prompt.has_focus)


@pytest.mark.slow
async def test_what_was_not_sent_is_there_the_next_time(chatting: Chatting) -> None:
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate)) as chat:
        await chat.ready()
        await chat.say("first")
        await chat.say("in the queue")
        await chat.until(lambda: len(chat.view.dialogue.queue) == 1)
        chat.prompt.text = "half typed"
        await chat.pilot.pause()
        await chat.pilot.press("ctrl+q")
        gate.set()
    async with chatting(ScriptedModel(WORDS)) as chat:
        assert chat.prompt.text == "half typed"
        assert chat.texts == []
        await chat.pilot.press("up", "up")
        assert chat.prompt.text == "first"
    async with chatting(ScriptedModel(WORDS), continues=True) as chat:
        await chat.until("queued · 1")
        assert chat.texts[0] == ("user", "first")
        assert chat.prompt.text == "first\n\nhalf typed"
    async with chatting(ScriptedModel(WORDS), keeps=False) as chat:
        assert "in the queue" not in chat.shown


async def test_an_export_spares_a_file_that_is_there(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "precious.md"
    file.write_text("my notes")
    await chat.ask("hello")
    await chat.say(f"/export {file}")
    await chat.say(f"/export {tmp_path / 'new.md'}")
    await chat.until((tmp_path / "new.md").exists)
    assert file.read_text() == "my notes"


@pytest.mark.slow
async def test_regenerate_edit_and_go_on(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS), reads_ahead=False) as chat:
        await chat.ask("hello")
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: chat.view.is_idle and "‹2/2›" in chat.shown)
        chat.view.dialogue.turns[1].tokens = ()  # as after a restart: the script begins anew
        await chat.pilot.press("ctrl+t")
        await chat.until(lambda: chat.texts[1] == ("assistant", ALL + ALL) and chat.view.is_idle)
        assert chat.view.dialogue.turns[1].ending.startswith("the last ")
        chat.prompt.text = "half typed"
        before = await settled_text(chat.pilot)
        await chat.pilot.press("f9")
        await chat.until(lambda: chat.prompt.text == "hello")
        assert "editing: Enter adds version 2" in chat.shown
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.prompt.text == "half typed")
        await chat.until(lambda: chat.shown == before)
        await chat.pilot.press("f9")
        await chat.until(lambda: chat.prompt.text == "hello")
        await chat.say("hello, edited")
        await chat.until(lambda: chat.texts == [("user", "hello, edited"), ("assistant", ALL)])
        await chat.idle()
        await chat.pilot.press("ctrl+c", "ctrl+z")
        await chat.until(lambda: chat.prompt.text == "half typed")
        await chat.pilot.press("ctrl+c")
        await chat.screen.action_perform("undo")
        await chat.until(lambda: chat.texts[0] == ("user", "hello"))


async def test_a_file_named_in_a_question_goes_with_it(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("all I know")
    (tmp_path / "picture.bin").write_bytes(b"\xff\xfe\x00")
    await chat.ask("look at @notes.txt")
    (attached,) = chat.view.dialogue.turns[0].attachments
    assert attached.text == "all I know"
    assert "▸ notes.txt" in chat.shown
    assert "all I know" not in chat.shown
    await chat.say("and @picture.bin")
    await chat.until(lambda: "picture.bin" in chat.prompt.text)
    assert len(chat.texts) == 2


@pytest.mark.slow
async def test_a_race_of_the_last_question_leaves_the_chat_as_it_was(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS), (120, 40)) as chat:
        await chat.ask("hello")
        before = list(chat.texts)
        await chat.pilot.press("f5")
        await chat.until("31 tokens")
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.app.screen is chat.screen)
        assert chat.texts == before


@pytest.mark.slow
async def test_a_race_that_is_left_early_leaves_the_drafter_as_it_was(chatting: Chatting) -> None:
    gate = Event()
    gate.set()
    async with chatting(ScriptedModel(WORDS, gate=gate), (120, 40), reads_ahead=False) as chat:

        def drafters() -> tuple[str, ...] | None:
            loaded = chat.app.engine.status.loaded
            return loaded.drafters if loaded else None

        chat.app.engine.set_draft("lookup")
        await chat.ask("hello")
        await chat.until(lambda: drafters() == ("lookup",))
        gate.clear()
        await chat.pilot.press("f5")
        await chat.until(lambda: drafters() == ())
        await chat.pilot.press("escape")
        gate.set()
        await chat.until(lambda: drafters() == ("lookup",))


@pytest.mark.slow
async def test_every_size_of_terminal(chatting: Chatting) -> None:
    gate = Event()
    async with chatting(ScriptedModel(WORDS * 4, gate=gate, holds_at=60), (200, 50)) as chat:
        await chat.say("hello")
        await chat.until(lambda: len(chat.texts) == 2 and "word28" in chat.texts[1][1])
        for size in ((1, 1), (10, 3), (300, 2), (40, 12), (80, 24), (300, 70), (200, 50)):
            await chat.pilot.resize_terminal(*size)
            await chat.pilot.pause()
        await chat.pilot.press("x")
        gate.set()
        await chat.idle()
        assert chat.texts[1] == ("assistant", ALL * 4)
        assert chat.prompt.text == "x"


@pytest.mark.slow
async def test_what_is_said_is_kept_and_opened_again(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("keep this")
        number = chat.view.dialogue.chat
        assert number is not None
    async with chatting(ScriptedModel(WORDS)) as chat:
        dialogue = chat.view.dialogue.fresh()
        dialogue.open(number)
        await chat.view.open(dialogue)
        assert chat.texts == [("user", "keep this"), ("assistant", ALL)]
        await chat.ask("more")
        assert len(chat.view.dialogue.turns) == 4


async def test_a_text_cleared_on_the_way_out_comes_back_after_a_start(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        chat.prompt.text = "an important question"
        await chat.pilot.press("ctrl+c")
        assert chat.prompt.text == ""
    async with chatting(ScriptedModel(WORDS)) as chat:
        assert chat.prompt.text == ""
        await chat.pilot.press("up")
        assert chat.prompt.text == "an important question"


async def test_the_model_that_answers_is_kept_with_the_chat(chatting: Chatting) -> None:
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate)) as chat:
        await chat.say("before the model is there")
        gate.set()
        await chat.until(lambda: len(chat.texts) == 2 and chat.view.is_idle)
        dialogue = chat.view.dialogue
        assert dialogue.history is not None
        assert dialogue.chat is not None
        assert dialogue.history.chat(dialogue.chat).model == "scripted"


async def test_a_history_that_cannot_be_written_is_told_and_the_chat_goes_on(chat: Chat) -> None:
    await chat.ask("one")
    for file in Paths.of_this_user().data.glob("chats.sqlite3*"):
        file.unlink()
    await chat.ask("two")
    assert chat.texts[-1] == ("assistant", ALL)


class Clipboard:
    """Stands in for the system's, which a test machine may not have."""

    text = ""

    def copy(self, text: str) -> None:
        self.text = text


@pytest.mark.slow
async def test_a_click_copies_code_an_answer_or_an_address(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    clipboard = Clipboard()
    monkeypatch.setattr("pyperclip.copy", clipboard.copy)
    answer = [
        "Use this:\n\n",
        "```python\n",
        "print(1)\n",
        "```\n\n",
        "[more](https://a.example/b)",
    ]
    async with chatting(ScriptedModel(answer)) as chat:
        await chat.ask("how?")
        await chat.until("more")
        await chat.pilot.click(GrowingMarkdown, offset=(3, 3))
        await chat.until(lambda: clipboard.text == "print(1)")
        chat.app.clear_notifications()  # they would cover the figures
        await chat.until(lambda: "tokens · " in chat.shown and not chat.toasts)
        row = next(row for row in enumerate(chat.shown.splitlines()) if "tokens · " in row[1])
        await chat.pilot.click(offset=(row[1].index("tokens · "), row[0]))
        await chat.until(lambda: clipboard.text == "".join(answer))
        await chat.pilot.click(GrowingMarkdown, offset=(1, 5))
        await chat.until(lambda: clipboard.text == "https://a.example/b")


async def test_a_click_on_title_model_drafting_and_keys_does_what_they_name(
    chatting: Chatting,
) -> None:
    async with chatting(ScriptedModel(WORDS[:1])) as chat:
        await chat.ready()
        app, (width, height) = chat.pilot.app, chat.pilot.app.size
        for place, screen in (
            ((2, 0), ChatsScreen),
            ((width - 4, 0), ModelsScreen),
            ((width - 6, height - 2), DraftersScreen),
        ):
            await chat.pilot.click(offset=place)
            await chat.until(lambda screen=screen: isinstance(app.screen, screen))
            row = app.screen.query_one(Dialog).region.bottom - 1
            await chat.pilot.click(offset=(screen_text(app).split("\n")[row].index("Esc"), row))
            await chat.until(lambda: isinstance(app.screen, ChatScreen))


async def test_the_panel_opens_with_the_first_answer(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS[:1]), size=(120, 36)) as chat:
        await chat.ready()
        assert not chat.screen.panel.display
        await chat.ask("one")
        assert chat.screen.panel.display


async def test_what_is_sent_right_after_a_new_chat_is_asked_there(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a "] * 3, gate=Event())) as chat:
        await chat.ready()
        area = chat.prompt
        for key in (*"one", "enter", "ctrl+n", *"two", "enter"):
            character = key if len(key) == 1 else None
            area.post_message(Key(key, character))
        await chat.until(lambda: [turn.text for turn in chat.view.dialogue.turns][:1] == ["two"])


@pytest.mark.slow
async def test_undo_shows_a_chat_as_it_is_by_now(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS[:3])) as chat:
        await chat.ask("one")
        number = chat.view.dialogue.chat
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: chat.texts == [])
        await chat.screen.action_perform("chats", str(number))
        await chat.ask("two")
        await chat.screen.action_perform("undo")
        await chat.pilot.pause()
        assert [text for role, text in chat.texts if role == "user"] == ["one", "two"]


@pytest.mark.slow
async def test_a_chat_that_is_gone_cannot_be_opened_and_says_so(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS[:3])) as chat:
        await chat.ask("one")
        history, number = chat.view.dialogue.history, chat.view.dialogue.chat
        assert history is not None
        assert number is not None
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: chat.texts == [])
        await chat.pilot.press("ctrl+o")
        await chat.until(lambda: "Search titles" in chat.shown and "one" in chat.shown)
        history.remove(number)
        await chat.pilot.press("enter")
        await chat.until(f"no chat {number}")


@pytest.mark.slow
async def test_a_command_from_the_palette_is_no_edited_question(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS[:3])) as chat:
        await chat.ask("one")
        await chat.pilot.press("f9")
        await chat.until(lambda: chat.prompt.text == "one")
        await chat.pilot.press("ctrl+p", *"rename this", "enter")
        await chat.until(lambda: chat.prompt.text == "/rename ")
        await chat.pilot.press(*"Foo", "enter")
        await chat.until(lambda: chat.view.dialogue.title == "Foo")
        assert [text for role, text in chat.texts if role == "user"] == ["one"]


@pytest.mark.slow
async def test_what_is_sent_while_an_answer_stops_is_answered(chatting: Chatting) -> None:
    gate = Event()
    gate.set()
    async with chatting(
        ScriptedModel(WORDS * 40, rate=100.0, gate=gate), reads_ahead=False
    ) as chat:
        await chat.ready()
        await chat.say("one")
        await chat.until(lambda: len(chat.texts) == 2 and len(chat.texts[1][1]) > 20)
        gate.clear()
        chat.view.stop()
        await chat.say("two")
        gate.set()
        questions = ["one", "two"]
        await chat.until(
            lambda: (
                [turn.text for turn in chat.view.dialogue.turns if turn.role == "user"] == questions
            )
        )
        await chat.until(lambda: len(chat.view.dialogue.turns) == 4)
        chat.view.stop()
        await chat.idle()


@pytest.mark.slow
async def test_the_queue_goes_on_after_an_earlier_answer_was_continued(chatting: Chatting) -> None:
    gate = Event()
    gate.set()
    async with chatting(ScriptedModel(WORDS[:5], gate=gate), reads_ahead=False) as chat:
        await chat.ask("one")
        await chat.ask("two")
        answer = chat.view.transcript.view_of(chat.view.dialogue.turns[1])
        assert answer is not None
        answer.focus()
        gate.clear()
        await chat.screen.action_perform("go_on")
        await chat.say("three")
        await chat.until(lambda: len(chat.view.dialogue.queue) == 1)
        gate.set()
        await chat.until(lambda: len(chat.view.dialogue.turns) == 6 and chat.view.is_idle)
        await chat.idle()


@pytest.fixture
def blocked() -> Path:
    """The data folder, in whose place is a file."""
    data = Paths.of_this_user().data
    data.parent.mkdir(parents=True, exist_ok=True)
    data.touch()
    return data


async def test_an_unsaved_chat_is_given_one_second_thought(
    chatting: Chatting, blocked: Path
) -> None:
    async with chatting(ScriptedModel(WORDS[:3])) as chat:
        await chat.ask("one")
        await chat.press("ctrl+q")
        assert str(blocked) in chat.prompt.fault
        assert chat.app.is_running
        assert await chat.screen.action_perform("quit")


async def test_chats_are_kept_until_the_data_folder_can_be_written(
    chatting: Chatting, blocked: Path
) -> None:
    async with chatting(ScriptedModel(WORDS[:3])) as chat:
        await chat.until(lambda: str(blocked) in chat.app.store.not_saved)
        await chat.screen.action_perform("model")  # the list needs no chats
        await chat.until(lambda: chat.app.screen is not chat.screen)
        await chat.press("escape")
        await chat.ask("first")
        await chat.screen.action_perform("new")
        await chat.ask("second")
        await chat.screen.action_perform("new")
        await chat.pilot.pause()
        assert str(blocked) in chat.app.store.not_saved
        assert not await chat.screen.action_perform("quit")
        assert "quitting again loses" in chat.prompt.fault
        blocked.unlink()
        await chat.until(lambda: not chat.app.store.not_saved)
        await chat.ask("third")
        chat.prompt.text = "typed"
    with closing(History.open(blocked / "chats.sqlite3")) as history:
        titles = {one.title: one.messages for one in history.chats()}
    assert titles == {"first": 2, "second": 2, "third": 2}
    assert (blocked / "unsent.txt").read_text() == "typed"


@pytest.mark.usefixtures("blocked")
async def test_quitting_with_nothing_to_lose_never_asks(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS[:3])) as chat:
        await chat.until(lambda: bool(chat.app.store.not_saved))
        chat.prompt.text = "typed"
        assert not await chat.screen.action_perform("quit")
        chat.prompt.text = ""
        chat.screen.commands.warned_of.clear()
        assert await chat.screen.action_perform("quit")


@pytest.mark.slow
async def test_an_edit_stopped_before_its_answer_is_an_edit_again(chatting: Chatting) -> None:
    gate = Event()
    gate.set()
    async with chatting(ScriptedModel(WORDS, gate=gate), reads_ahead=False) as chat:
        await chat.ask("first")
        gate.clear()
        await chat.pilot.press("f9")
        await chat.until(lambda: chat.prompt.text == "first")
        chat.prompt.text = "changed"
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.view.pending is not None)
        await chat.pilot.press("escape")
        gate.set()
        await chat.until(lambda: chat.view.is_idle and chat.prompt.text == "changed")
        await chat.until(lambda: chat.texts[:1] == [("user", "first")])
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.texts[:1] == [("user", "changed")] and chat.view.is_idle)
        assert len(chat.view.dialogue.versions(chat.view.dialogue.turns[0])) == 2


@pytest.mark.slow
async def test_the_app_can_end_while_a_message_is_removed(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, removing = Event(), Event()

    async def leave_slowly(_view: QuestionView) -> None:
        removing.set()
        for _ in range(5_000):
            await asyncio.sleep(0)  # the app's end stops all timers meanwhile

    monkeypatch.setattr(QuestionView, "on_unmount", leave_slowly, raising=False)
    async with chatting(ScriptedModel(WORDS, gate=gate, fails_at=0)) as chat:
        await chat.say("this one comes back")
        gate.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not removing.is_set():
                await asyncio.sleep(0)  # a pause of the pilot waits for the removal's end


@pytest.mark.slow
async def test_arrows_at_an_empty_prompt_and_clicks_switch_versions(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("first")
        for count in (2, 3):
            await chat.pilot.press("ctrl+r")
            await chat.until(lambda count=count: f"‹{count}/{count}›" in chat.shown)
            await chat.idle()
        for keys, place in ((["left"], 2), (["left", "left"], 1), (["right"], 2)):
            await chat.pilot.press(*keys)
            await chat.until(lambda place=place: f"‹{place}/3›" in chat.shown)
        await chat.pilot.press("x", "left", "left", "y")  # in a text they move the cursor
        assert chat.prompt.text == "yx"
        for offset, place in (((4, 0), 3), ((4, 0), 1), ((0, 0), 3), ((0, 0), 2)):
            label = chat.view.transcript.views[-1]._label
            assert await chat.pilot.click(label, offset=offset)
            await chat.until(lambda place=place: f"‹{place}/3›" in chat.shown)
        assert "copied" not in chat.toasts.lower()
