"""The model: one in use is not loaded again, and what needs one waits for it or says so."""

from threading import Event

import pytest

from tests.app.tui.conftest import Chatting
from tests.fixtures import scripted
from tests.fixtures.scripted import ScriptedContext, ScriptedModel

WORDS = [f"word{number} " for number in range(10)]


class Late(ScriptedModel):
    """A model that is loading until its gate opens."""

    def open(self, n_ctx: int, *, drafts: bool = True) -> ScriptedContext:
        assert self.gate is not None
        self.gate.wait(60)
        return super().open(n_ctx)


@pytest.mark.slow
async def test_the_model_in_use_goes_on_answering(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS * 400, rate=300.0), toasts=True) as chat:
        await chat.ready()
        loaded = chat.app.engine.status.loaded
        await chat.say("go on")
        await chat.until(lambda: len(chat.texts) == 2 and bool(chat.texts[1][1]))
        await chat.say(f"/model {scripted.__file__}")
        await chat.until(lambda: "scripted.py is loaded already." in chat.toasts)
        said = len(chat.texts[1][1])
        await chat.until(lambda: len(chat.texts[1][1]) > said)
        assert chat.app.engine.status.loaded is loaded


@pytest.mark.slow
@pytest.mark.parametrize("key", ["ctrl+r", "ctrl+t", "f5"])
async def test_what_needs_a_model_says_that_it_is_loading(chatting: Chatting, key: str) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("hello")
    async with chatting(Late(WORDS, gate=Event()), continues=True) as chat:
        await chat.until(lambda: len(chat.texts) == 2)
        await chat.pilot.press(key)
        await chat.until(lambda: "the model is still loading" in chat.shown)
        assert chat.app.screen is chat.screen


@pytest.mark.slow
async def test_a_queue_that_is_sent_while_the_model_loads_goes_with_it(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS * 400, rate=300.0)) as chat:
        await chat.say("first")
        await chat.say("second")
        await chat.until(lambda: len(chat.texts) == 2 and bool(chat.texts[1][1]))
        await chat.pilot.press("escape")
        await chat.idle()
    gate = Event()
    async with chatting(Late(WORDS, gate=gate), continues=True) as chat:
        await chat.until(lambda: "queued · 1" in chat.shown)
        chat.prompt.focus()
        await chat.pilot.press("enter")
        await chat.until(lambda: "waiting for a model" in chat.shown)
        gate.set()
        await chat.until(lambda: len(chat.texts) == 4 and chat.view.is_idle)
        assert chat.texts[2] == ("user", "second")


@pytest.mark.slow
async def test_continuing_in_mid_answer_says_that_it_is_in_progress(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS * 400, rate=300.0)) as chat:
        await chat.say("go on")
        await chat.until(lambda: len(chat.texts) == 2 and bool(chat.texts[1][1]))
        await chat.pilot.press("ctrl+t")
        await chat.until(lambda: "an answer is in progress" in chat.prompt.fault)
