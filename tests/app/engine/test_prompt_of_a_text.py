"""A text that is continued as it is, and the part of a prompt that begins its reply."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from app.chat.conversation import Conversation
from app.engine import session as session_module
from app.engine.reply import new_reply
from app.engine.session import Session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.chat.message import Message
from decoding.events import Event
from decoding.generation import generate
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.scripted import ScriptedModel, opened


@pytest.fixture
def session() -> Iterator[Session]:
    open_session = opened(ScriptedModel(["one ", "two "]))
    with closing(open_session(SessionOptions(), Paths.of_this_user(), lambda _: None)) as session:
        yield session


def test_a_text_is_no_conversation(session: Session) -> None:
    conversation = Conversation("", [Message("user", "hello")])
    assert session.prompt(conversation)[0].is_conversation
    assert not session.raw_prompt("hello").is_conversation


def test_the_loop_is_told_what_of_a_prompt_begins_the_reply(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def told_to(*given: Any, begun: int = 0, **more: Any) -> Iterator[Event]:
        told.append(begun)
        return generate(*given, begun=begun, **more)

    monkeypatch.setattr(session_module, "generate", told_to)
    prompt = session.continued(session.raw_prompt("hello"), "begun")
    for _ in session.stream(prompt, SamplingSettings(0.0), 2, new_reply(), lambda: False):
        pass
    assert told == [prompt.begun] == [len("begun")]
