"""A budget ends the thinking of a real loop's reply, which says so."""

from pathlib import Path
from typing import Any, cast

import pytest

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.engine import Engine
from app.engine.reply import Request
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.tui import wording
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.scripted import ScriptedModel, opened

PATIENCE_SECONDS = 60


PIECES = ("<think>", "I", " wonder", ".", "</think>", "Yes", "!")


def thinker() -> ScriptedModel:
    """A model whose marks are tokens of their own."""
    model = ScriptedModel(PIECES)
    tokenizer = cast("Any", model.tokenizer)
    tokenizer.chat_template = "{{ messages[0].content }}{# <think> </think> #}"
    encode = tokenizer.encode

    def encoded(text: str, *, special: bool) -> list[int]:
        known = special and text in model.texts
        return [model.texts.index(text)] if known else encode(text, special=special)

    tokenizer.encode = encoded
    return model


@pytest.mark.parametrize(
    ("budget", "begins", "thinking"),
    [
        (0, "<think>I wonder.</think>Yes!", 5),
        (2, "<think>I wonder</think>", 4),
        (3, "<think>I wonder.</think>Yes!", 5),
        (90, "<think>I wonder.</think>Yes!", 5),
    ],
)
def test_thinking_is_ended_by_its_closing_text_once_the_budget_is_spent(
    budget: int, begins: str, thinking: int, home: Path
) -> None:
    paths = Paths(home / "a", home / "b", home / "c")
    engine = Engine(SessionOptions(), paths, opened(thinker()))
    engine.start()
    try:
        conversation = Conversation("", [Message("user", "Is it?")])
        options = ReplyOptions(think_budget=budget)
        greedy = SamplingSettings(temperature=0.0)
        answer = engine.ask(Request(conversation, greedy, 20, options=options))
        assert answer.wait(PATIENCE_SECONDS)
    finally:
        assert engine.close(PATIENCE_SECONDS)
    assert answer.error is None
    assert answer.text.startswith(begins)
    assert answer.reply.thinking_tokens == thinking
    assert answer.metrics is not None
    line = wording.ending(answer.metrics, answer.finish_reason)
    is_told = f"thinking ended at {budget} tokens" in line
    assert is_told == (budget in (2, 3))  # at 3 nothing else could follow
