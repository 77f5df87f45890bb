"""What the terminal is told for a person who looks elsewhere: title, bell, notification."""

from threading import Event

import pytest

from app.tui import chat_screen
from app.tui.terminal import OutsideWindow
from tests.app.tui.conftest import Chatting
from tests.fixtures.scripted import ScriptedModel

WORDS = ("It ", "is ", "done.")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written past Textual."""
    sequences: list[str] = []
    monkeypatch.setattr(OutsideWindow, "_write", lambda _window, text: sequences.append(text))
    monkeypatch.setenv("TERM", "xterm-256color")
    return sequences


async def test_the_title_is_the_chats_with_its_state_and_the_old_one_comes_back(
    chatting: Chatting, written: list[str]
) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("Is it\x1b]2;evil\x07?")
        await chat.until(lambda: "● " not in written[-1])
    titles = [text for text in written if "]2;" in text]
    assert titles[0] == "\x1b[22;2t\x1b]2;specchat\x07"
    assert any("● Is it" in title for title in titles)
    assert all(title.count("\x1b]") == 1 for title in titles)
    assert written[-1] == "\x1b[23;2t"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "focus", "notify", "is_told"),
    [
        (0.0, False, True, True),
        (0.0, True, True, False),
        (0.0, False, False, False),
        (1e9, False, True, False),
    ],
)
async def test_a_long_answer_is_told_where_nobody_looks(
    seconds: float,
    focus: bool,
    notify: bool,
    is_told: bool,
    chatting: Chatting,
    written: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat_screen, "_LONG_ANSWER", seconds)
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate)) as chat:
        await chat.ready()
        if not notify:
            await chat.say("/set notify false")
        await chat.say("Is it; really?")
        await chat.until(lambda: chat.app.store.is_answering)
        chat.app.app_focus = focus  # a key brings it back
        gate.set()
        await chat.until(lambda: not chat.app.store.is_answering)
    told = [text for text in written if "]9;" in text]
    assert told == ["\x1b]9;Answered: Is it, really?\x07"] * is_told
