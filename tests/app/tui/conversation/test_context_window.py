"""A context that is full: the oldest turns leave it, and the screen shows where it begins."""

import pytest
from textual.widgets import Static

from tests.app.tui.conversation.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

WORDS = [f"word{number} " for number in range(30)]


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
