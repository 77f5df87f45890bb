"""The app in front of a server elsewhere."""

from threading import Event

import pytest

from app.loading.session_options import SessionOptions
from tests.app.tui.conftest import Chatting
from tests.fixtures.recorded_servers import DONE, HI, RECORDED, Script, chunk, replaying, usage
from tests.fixtures.scripted import ScriptedModel

SAID = [*map(chunk, HI), chunk({}, "stop", usage=usage()), DONE]


@pytest.mark.slow
async def test_a_cut_answer_is_continued_and_nothing_is_pretended(chatting: Chatting) -> None:
    with replaying(Script(events=SAID[:1], is_cut=True)) as server:
        options = SessionOptions(backend="remote", url=server.url)
        async with chatting(ScriptedModel([]), (130, 34), options=options) as chat:
            await chat.until("drafting: the server's")
            assert "A server elsewhere answers." in chat.shown
            assert "See what drafting does" not in chat.shown
            await chat.ask("hi")
            await chat.until("broke off")
            assert chat.texts[-1] == ("assistant", "Hello")
            server.events, server.is_cut = [chunk({"content": " again"}, "stop"), DONE], False
            await chat.pilot.press("ctrl+t")
            await chat.until("Hello again")
            await chat.idle()
            assert server.asked[1]["messages"][-1] == {"role": "assistant", "content": "Hello"}
            await chat.say("/race")
            await chat.until("is on a server")


@pytest.mark.slow
async def test_figures_are_those_that_the_server_tells(chatting: Chatting) -> None:
    recorded = RECORDED["vLLM"]
    with replaying(Script(recorded.models, recorded.events)) as server:
        options = SessionOptions(backend="remote", url=server.url)
        async with chatting(ScriptedModel([]), (130, 34), options=options) as chat:
            await chat.ask("hi")
            await chat.until("10 of 129")
            assert "×" not in chat.shown
            await chat.pilot.press("f2")
            await chat.until("num_accepted_draft_tokens 10")
            assert "of 0 drafts" not in chat.shown


@pytest.mark.slow
async def test_what_a_server_does_otherwise_is_told(chatting: Chatting) -> None:
    recorded, held = RECORDED["llama-server"], Event()
    with replaying(
        Script(recorded.models, [chunk(HI[0]), DONE], gate=lambda number: number and held.wait(60))
    ) as server:
        options = SessionOptions(backend="remote", url=server.url)
        async with chatting(ScriptedModel([]), (130, 34), options=options) as chat:
            await chat.until("drafting: the server's")
            await chat.say("/model nosuch")
            await chat.until(lambda: "does not list nosuch: m answers" in chat.toasts)
            await chat.until("m · 127.0.0.1")
            await chat.say("/draft lookup")
            await chat.until("it then drafts here")
            await chat.say("hi")
            await chat.until(lambda: chat.texts[-1] == ("assistant", "Hello"))
            await chat.pilot.press("ctrl+t")
            await chat.until(lambda: "in progress" in chat.prompt.fault)
            await chat.say("/stop")
            held.set()
            await chat.until(lambda: chat.view.is_idle and not chat.prompt.fault)
            await chat.pilot.press("f2")
            await chat.until("nothing before an answer ends")
