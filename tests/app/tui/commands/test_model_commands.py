"""The model: one that is in use already is not loaded again."""

from tests.app.tui.conftest import Chatting
from tests.fixtures import scripted
from tests.fixtures.scripted import ScriptedModel

WORDS = [f"word{number} " for number in range(10)]


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
