"""Prompts of texts, and of gaps between two texts."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.chat.conversation import Conversation, Infill
from app.engine import session as session_module
from app.engine.reply import Reply, Request
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import PromptTooLargeError, UsageError
from decoding.events import Event
from decoding.generation import generate
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.sessions import GREEDY, conversation


@pytest.fixture
def session() -> Iterator[Session]:
    open_session = opened(ScriptedModel(["one ", "two "]))
    with closing(open_session(SessionOptions(), Paths.of_this_user(), lambda _: None)) as session:
        yield session


def test_a_text_is_no_conversation(session: Session) -> None:
    asked = Request(conversation("hello"), GREEDY, 2)
    assert session.prompt(asked)[0].is_conversation
    assert not session.prompt(replace(asked, text="hello"))[0].is_conversation


def test_the_loop_is_told_what_of_a_prompt_begins_the_reply(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def told_to(*given: Any, begun: int = 0, **more: Any) -> Iterator[Event]:
        told.append(begun)
        return generate(*given, begun=begun, **more)

    monkeypatch.setattr(session_module, "generate", told_to)
    reply = Reply(Request(conversation("hello"), GREEDY, 2, "begun"))
    prompt, _ = session.prompt(reply.request)
    for _ in session.stream(prompt, reply, lambda: False):
        pass
    assert told == [prompt.begun] == [len("begun")]


@pytest.mark.parametrize("is_text", [False, True])
def test_what_is_far_too_long_is_refused_before_it_is_turned_into_tokens(
    session: Session, is_text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, begun = 16 * session.context.facts.n_ctx, "x" * 80
    monkeypatch.setattr(session, "template", None)
    told = conversation(begun, "x" * (most - len(begun) + 1))
    text = "x" * (most + 1) if is_text else None
    with pytest.raises(PromptTooLargeError):
        session.prompt(Request(told, GREEDY, 1, text=text, may_drop=False))


TinyLlama = Callable[..., Path]
PREFIX, SUFFIX, MIDDLE = 1, 2, 3
"""Numbers of the control tokens in the small vocabulary."""
GAP = Infill("def half(x):\n    return ", "<|fim_middle|>\n\ud83d print(half(4))")


def options(path: Path) -> SessionOptions:
    return SessionOptions(model=str(path), draft="off", threads=1)


@pytest.mark.usefixtures("llamacpp")
def test_the_prompt_is_the_text_before_then_after_and_control_texts_in_them_are_text(
    tiny_llama: TinyLlama,
) -> None:
    file = tiny_llama(form="infill")
    with closing(open_session(options(file), Paths.of_this_user(), lambda _: None)) as session:
        prompt, _ = session.prompt(Request(Conversation(), GREEDY, 8, text=GAP))
        tokens = prompt.tokens
        pieces = [session.model.tokenizer.piece(token) for token in tokens]
    assert not prompt.is_conversation
    marks = [PREFIX, SUFFIX, MIDDLE]
    assert [token for token in tokens if token in marks] == marks
    assert (tokens[0], tokens[-1]) == (PREFIX, MIDDLE)
    place = tokens.index(SUFFIX)
    assert b"".join(pieces[1:place]).decode() == GAP.before
    assert b"".join(pieces[place + 1 : -1]).decode() == GAP.after.replace("\ud83d", "?")


def test_a_model_without_the_tokens_refuses(session: Session) -> None:
    with pytest.raises(UsageError, match="cannot fill in the middle"):
        session.prompt(Request(Conversation(), GREEDY, 8, text=GAP))
