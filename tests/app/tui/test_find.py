"""Finding a text: within a chat, and from the list of chats on to the place that holds it."""

from contextlib import closing
from threading import Event

from textual.widgets import Input

from app.history import History
from app.paths import Paths
from app.tui.chat.answer import AnswerView
from app.tui.chat.find import FindBar
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

LINES = "".join(f"line {number}\n\n" for number in range(60))
WORDS = ["some ", "answer"]


def long_chat(pairs: int = 20) -> None:
    """Chats of the history: a long one, and a newer one."""
    with closing(History.open(Paths.of_this_user().history)) as history:
        chat = history.create("demo")
        for number in range(pairs):
            history.add(chat, "user", f"question {number}")
            text = f"{LINES}a **Narwhal** in reply {number}\n\n{LINES}"
            history.add(chat, "assistant", text if number in (3, 7) else "short", "done")
        other = history.create("demo")
        history.add(other, "user", "newer")
        history.add(other, "assistant", "question 0", "done")


def found(chat: Chat) -> str:
    """What is marked on the screen."""
    return "".join(
        segment.text
        for strip in chat.app.screen._compositor.render_strips()
        for segment in strip
        if segment.style is not None and segment.style.reverse
    )


async def test_the_next_and_the_one_before_in_a_long_chat(chatting: Chatting) -> None:
    long_chat()
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ready()
        await chat.screen.action_perform("chats", "1")
        await chat.pilot.press("ctrl+f", *"narwhal")
        for reply, keys in ((3, "ctrl+f"), (7, "down"), (3, "up"), (7, "escape")):
            number = "1 of 2" if reply == 3 else "2 of 2"
            await chat.until(lambda number=number: number in chat.shown)
            await chat.until(lambda reply=reply: f"a Narwhal in reply {reply}" in chat.shown)
            assert "Narwhal" in found(chat)
            await chat.pilot.press(keys)
        await chat.until(lambda: chat.prompt.has_focus)
        assert not chat.screen.query_one(FindBar).display
        assert "Narwhal" not in found(chat)
        await chat.pilot.press(*"typed")
        assert chat.prompt.text == "typed"


async def test_the_list_shows_the_line_and_goes_on_to_it(chatting: Chatting) -> None:
    long_chat()
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ready()
        await chat.pilot.press("ctrl+o", *"narwhal")
        await chat.until("a **Narwhal** in reply 3")
        await chat.pilot.press("enter")
        await chat.until(lambda: "a Narwhal in reply 3" in chat.shown and "1 of 2" in chat.shown)
        assert chat.screen.query_one(FindBar).query_one(Input).value == "narwhal"


async def test_a_title_comes_first_and_opens_at_its_end(chatting: Chatting) -> None:
    long_chat(2)
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ready()
        await chat.pilot.press("ctrl+o", *"question", "space", "0", "enter")
        await chat.until(lambda: len(chat.texts) == 4)
        assert chat.texts[0] == ("user", "question 0")
        assert not chat.screen.query_one(FindBar).display


async def test_a_text_of_another_version_has_it_shown(chatting: Chatting) -> None:
    with closing(History.open(Paths.of_this_user().history)) as history:
        number = history.create("demo")
        question = history.add(number, "user", "why?")
        for answer in ("a narwhal", "a walrus"):
            history.add(number, "assistant", answer, "done", parent=question)
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ready()
        await chat.pilot.press("ctrl+o", *"narwhal", "enter")
        await chat.until(lambda: chat.texts[1:] == [("assistant", "a narwhal")])
        await chat.until(lambda: found(chat).strip() == "narwhal")
        assert isinstance(chat.view.transcript.views[1], AnswerView)


async def test_what_is_found_grows_with_the_answer(chatting: Chatting) -> None:
    gate = Event()
    words = [*(f"line {number}\n\n" for number in range(40)), "a narwhal\n\n", "and a narwhal"]
    async with chatting(ScriptedModel(words, gate=gate, holds_at=30), reads_ahead=False) as chat:
        await chat.say("which?")
        await chat.until("line 29")
        await chat.pilot.press("ctrl+f", *"narwhal")
        await chat.until(lambda: "none" in chat.shown)
        gate.set()
        await chat.until(lambda: "1 of 2" in chat.shown and found(chat).strip() == "narwhal")
        await chat.pilot.press("enter")
        await chat.until(lambda: "2 of 2" in chat.shown)
        old = chat.view.dialogue.turns[-1]
        await chat.pilot.press("ctrl+r")  # the place is gone with the version
        await chat.until(lambda: chat.view.is_idle and "1 of 2" in chat.shown)
        assert chat.view.dialogue.turns[-1] is not old
        await chat.until(lambda: found(chat).strip() == "narwhal")
