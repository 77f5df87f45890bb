"""Reading ahead as the app sees it: what it expects is what is asked, and no key disturbs it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest

from app.ahead.expected import AheadState, Expected, Permission
from app.ahead.piece_reader import GROUP
from app.chat.conversation import Conversation
from app.engine.answer import Answer
from app.engine.engine import Engine
from app.engine.reply import Request
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.settings import file
from app.tui.app import SpecchatApp
from app.tui.prompt import prompt
from backends.base import Logits, ModelError
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings
from tests.app.tui.conftest import ALL, WORDS, Chat, Chatting, start
from tests.fixtures.scripted import ScriptedContext, ScriptedModel, opened

LONG = "many words " * 20


@dataclass
class Told:
    """What the engine was told to expect, and what it was asked, in order."""

    order: list[Expected | Request | None] = field(default_factory=list)

    @property
    def expected(self) -> Expected | None:
        """The latest; None if an answer was asked for since."""
        last = self.order[-1] if self.order else None
        return last if isinstance(last, Expected) else None

    @property
    def message(self) -> str:
        """The last message of what is expected."""
        turns = self.expected.conversation.turns if self.expected else []
        return turns[-1].content if turns else ""

    @property
    def asked(self) -> list[Request]:
        return [one for one in self.order if isinstance(one, Request)]

    def before(self, request: Request) -> Expected:
        """What was expected last of what was typed when something was asked."""
        told = self.order[: self.order.index(request)]
        typed = (one for one in reversed(told) if isinstance(one, Expected) and one.is_typing)
        return next(typed)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Records in place of reading."""
    kept, begin = Told(), Engine.begin

    def began(engine: Engine, answer: Answer) -> None:
        kept.order.append(answer.request)
        begin(engine, answer)

    def told(_: Engine, expected: Expected | None) -> None:
        if not kept.order or kept.order[-1] is not expected:  # the engine takes no notice of it
            kept.order.append(expected)

    monkeypatch.setattr(Engine, "expect", told)
    monkeypatch.setattr(Engine, "begin", began)
    return kept


def contents(told: Told) -> list[str]:
    return [turn.content for turn in told.expected.conversation.turns] if told.expected else []


async def type_in(chat: Chat, text: str) -> None:
    chat.screen.prompt.area.write(text)
    await chat.until(lambda: chat.screen.prompt.is_followed)


@pytest.mark.slow
async def test_what_was_expected_is_what_is_asked(told: Told, chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("all I know")
    await chat.ready()
    for text in ("first", f"  on @{tmp_path / 'notes.txt'}: why?  ", "third"):
        await type_in(chat, text)
        await chat.until(lambda: told.expected is not None and told.expected.is_typing)
        await chat.ask(text)
        asked = told.asked[-1].conversation
        expected = told.before(told.asked[-1]).conversation
        assert expected.system == asked.system
        assert expected.turns[:-1] == asked.turns[:-1]
        assert expected.turns[-1].content.rstrip() == asked.turns[-1].content
    assert "all I know" in told.asked[1].conversation.turns[-1].content


async def test_a_pause_changes_what_is_expected_and_only_then(told: Told, chat: Chat) -> None:
    await chat.ready()
    await type_in(chat, "why")
    await chat.until(lambda: told.message == "why")
    count = len(told.order)
    for _ in range(5):
        chat.screen._expect()
    assert len(told.order) == count
    await chat.pilot.press("ctrl+c")
    await chat.until(lambda: told.expected is not None and not told.expected.is_typing)
    assert told.message == ""
    await type_in(chat, "/set temperature 0")
    await chat.until(lambda: chat.screen.prompt.is_followed)
    assert told.message == ""


async def test_nothing_is_expected_while_it_answers(chatting: Chatting, told: Told) -> None:
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate)) as chat:
        await chat.ready()
        await chat.say("hello")
        await chat.until(lambda: bool(told.asked))
        await type_in(chat, "and then")
        chat.screen._expect()
        assert told.expected is None
        gate.set()
        await chat.until(lambda: told.message == "and then")
        assert contents(told) == ["hello", ALL, "and then"]


async def test_what_an_answer_to_something_else_made_void_is_told_again(chat: Chat) -> None:
    """As a short one of a race, which is over between two looks at the engine."""
    await chat.ready()
    await type_in(chat, LONG)
    engine = chat.app.engine
    await chat.until(lambda: engine.status.ahead is not None)
    other = Conversation("", [Message("user", "something else")])
    answer = engine.ask(Request(other, SamplingSettings(temperature=0.0), 1))
    assert answer.wait(30)
    assert not engine.is_answering
    assert engine.status.ahead is None
    await chat.until(lambda: (engine.status.ahead or AheadState(0, 0)).read >= len(LONG) - 8)


@pytest.mark.slow
async def test_sending_does_not_unsay_what_was_expected(told: Told, chat: Chat) -> None:
    """What was read would be rolled back between Enter and the request."""
    await chat.ready()
    for number in range(3):
        await type_in(chat, f"question {number}")
        await chat.until(lambda number=number: told.message == f"question {number}")
        await chat.pilot.press("enter")
        await chat.until(lambda number=number: len(told.asked) > number)
        before = told.before(told.asked[number])
        assert before.conversation.turns[-1].content == f"question {number}"
        await chat.idle()


@pytest.mark.slow
async def test_a_question_is_expected_as_it_is_asked_before_it_is_painted(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[Engine, Answer]] = []
    begin = Engine.begin
    await chat.ready()
    await chat.ask("hello")
    monkeypatch.setattr(Engine, "begin", lambda *asked: begun.append(asked))
    await chat.say("and what then")
    await chat.until(lambda: bool(begun))
    engine, answer = begun[0]
    active = engine._active
    assert active is not None
    tokens = active.session.prompt(answer.request)[0].tokens
    context = active.session.context
    await chat.until(lambda: len(tokens) - context.facts.length <= GROUP)
    held = list(context.facts.tokens)  # it may grow meanwhile
    assert held == tokens[: len(held)]
    begin(engine, answer)
    await chat.idle()
    assert answer.metrics is not None
    assert answer.metrics.ahead_tokens > len("and what then")


async def test_the_end_of_a_sentence_is_followed_before_the_next_look_at_the_text(
    chatting: Chatting, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt, "_COUNT_SECONDS", 3600.0)
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ready()
        await chat.pilot.press("w", "h", "y")
        await chat.pilot.pause()
        assert not chat.screen.prompt.is_followed
        await chat.pilot.press("?")
        await chat.until(lambda: told.message == "why?")


@pytest.mark.slow
async def test_other_chats_and_edits_are_followed(told: Told, chat: Chat) -> None:
    await chat.ask("one")
    await chat.ask("two")
    number = chat.view.dialogue.chat
    await chat.until(lambda: told.message == ALL)
    await chat.pilot.press("f9")
    await chat.until(lambda: told.message == "two")
    await chat.pilot.press("!")
    await chat.until(lambda: told.message == "two!")
    assert told.expected is not None
    assert len(told.expected.conversation.turns) == 3
    await chat.pilot.press("escape")
    await chat.until(lambda: told.message == ALL)
    await chat.say("/system Be brief.")
    await chat.until(
        lambda: bool(told.expected) and told.expected.conversation.system == "Be brief."
    )
    await chat.say("/clear")
    await chat.until(lambda: bool(told.expected) and not told.expected.conversation.turns)
    await chat.say(f"/chats {number}")
    await chat.until(lambda: told.message == ALL)


async def test_the_setting_reaches_the_engine_at_once() -> None:
    paths, permission = Paths.of_this_user(), Permission()
    file.save(paths.settings, {"ahead": "off", "ahead_waste": 7.0})
    engine = Engine(SessionOptions(draft="off"), paths, opened(ScriptedModel(WORDS)))
    app = SpecchatApp(engine, None, start(), permission=permission)
    async with app.run_test() as pilot:
        chat = Chat(app, pilot)
        await chat.ready()
        assert (permission(), permission.most_waste()) == ("switched off", 7.0)
        await chat.say("/set ahead on")
        await chat.until(lambda: permission() == "")
        await chat.say("/set ahead_waste 3")
        await chat.until(lambda: permission.most_waste() == 3.0)
        await chat.say("/set ahead sometimes")
        await chat.until("ahead cannot be")
        assert permission() == ""
    engine.close(10.0)
    assert file.read(paths.settings) == {"ahead": "on", "ahead_waste": 3.0}


# With a model that reads


async def test_the_mark_appears_and_goes(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x" * 2000)
    await chat.ready()
    await chat.until("drafting: off")
    before = chat.shown.splitlines()
    chat.screen.prompt.area.write(f"see @{tmp_path / 'notes.txt'} now ")
    await chat.until("read 2,")
    read = chat.shown.splitlines()
    assert len(read) == len(before)
    assert read[-2].endswith(" · drafting: off ─╯")
    await chat.pilot.press("ctrl+c")
    await chat.until(lambda: "read 2," not in chat.shown)


async def test_what_was_read_is_told_of_the_answer(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x" * 2000)
    await chat.ready()
    chat.screen.prompt.area.write(f"see @{tmp_path / 'notes.txt'} now ")
    await chat.until("read 2,")
    await chat.pilot.press("enter")
    await chat.until(lambda: len(chat.view.dialogue.turns) == 2 and chat.view.is_idle)
    answer = chat.view.answer
    assert answer is not None
    assert answer.metrics is not None
    assert answer.metrics.ahead_tokens is not None
    assert 2000 < answer.metrics.ahead_tokens <= answer.metrics.cached_prompt_tokens
    assert chat.texts[-1] == ("assistant", ALL)


WRONG_MOMENTS = {
    "escape": ["escape"],
    "continue": ["ctrl+t"],
    "regenerate": ["ctrl+r"],
    "clear": ["ctrl+c"],
    "new chat": ["ctrl+n"],
    "edit": ["f9"],
    "undo and redo": ["ctrl+z", "ctrl+y"],
    "panel": ["f2", "f2", "f2"],
    "send": ["enter"],
    "send and stop": ["enter", "escape"],
}


@asynccontextmanager
async def reading(chatting: Chatting) -> AsyncIterator[tuple[Chat, Event]]:
    """In the midst of reading a long text, until the event is set."""
    gate = Event()
    gate.set()
    model = ScriptedModel(WORDS, gate=gate)
    async with chatting(model) as chat:
        await chat.ask("hello")
        gate.clear()
        passes = model.passes
        await type_in(chat, "typed " * 400)
        await chat.until(lambda: model.passes > passes)
        yield chat, gate
        await chat.ask("and now?")
        assert chat.texts[-1] == ("assistant", ALL)
        assert model.most_at_once == 1


@pytest.mark.slow
@pytest.mark.parametrize("keys", WRONG_MOMENTS.values(), ids=WRONG_MOMENTS)
async def test_a_key_in_the_midst_of_reading(chatting: Chatting, keys: list[str]) -> None:
    """Nothing waits for what is read, nothing is lost, and the next answer is whole."""
    async with reading(chatting) as (chat, gate):
        for key in keys:
            await chat.pilot.press(key)
        gate.set()
        await chat.idle()
        typed = [one.text for one in (*chat.prompt.unsent, *chat.prompt._past._past)]
        typed += [turn.text for turn in chat.view.dialogue.turns]
        assert any("typed typed" in text for text in typed)
        chat.prompt.end_edit()
        await chat.pilot.press("escape")


@pytest.mark.slow
async def test_another_model_in_the_midst_of_reading(chatting: Chatting) -> None:
    async with reading(chatting) as (chat, gate):
        engine = chat.app.engine
        loaded = engine.status.loaded
        engine.load("scripted")
        gate.set()
        await chat.until(lambda: engine.status.loaded is not loaded)
        await chat.ready()
        assert chat.prompt.text.startswith("typed typed")


@pytest.mark.slow
async def test_an_engine_that_fails_while_it_reads_ahead(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user has asked nothing yet, and sees no error."""

    def fail(*_: object) -> Logits:
        raise ModelError("the engine failed", "memory is short")

    await chat.ask("hello")
    engine, told = chat.app.engine, chat.cards
    with monkeypatch.context() as patch:
        patch.setattr(ScriptedContext, "forward", fail)
        await type_in(chat, "typed " * 400)
        await chat.until(lambda: bool(engine.status.ahead and engine.status.ahead.paused))
    await chat.until(lambda: "read " not in chat.shown)
    assert chat.cards == told
    assert engine.status.error is None
    await chat.ask("and now?")
    assert chat.texts[-1] == ("assistant", ALL)


async def test_quitting_in_the_midst_of_reading(chatting: Chatting) -> None:
    model = ScriptedModel(WORDS)
    async with chatting(model) as chat:
        await chat.ask("hello")
        await type_in(chat, "typed " * 1000)
    assert not chat.app.engine._thread.is_alive()
