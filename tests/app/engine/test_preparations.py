"""Prompts are built one for each time they were asked for, and beside an answer without delay."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from app.chat.conversation import Conversation, RawText, ReplyOptions
from app.engine import prompt_builder as asked_prompt
from app.engine.answer import Answer, Request
from app.engine.prompt_builder import Preparations
from backends.base import PromptTooLargeError
from backends.chat.message import Message
from decoding.constraint.grammar import Grammar, GrammarKind
from decoding.sampling.settings import SamplingSettings

if TYPE_CHECKING:
    from app.engine.session import Session

GRAMMAR = ReplyOptions(grammar=Grammar(GrammarKind.JSON_OBJECT))


@dataclass(slots=True)
class Recorded:
    """A session that tells which prompts it built and which grammars it looked at."""

    has_grammar_vocabulary: bool = False
    built: list[str] = field(default_factory=list[str])
    grammars: list[object] = field(default_factory=list[object])
    context: Any = field(default_factory=lambda: SimpleNamespace(n_ctx=10))

    def raw_prompt(self, text: str) -> object:
        self.built.append(text)
        return SimpleNamespace(tokens=[0] * len(text), form=None)

    def check(self, prompt: object, settings: object, options: ReplyOptions) -> None:
        self.grammars.append(options.grammar)

    @property
    def as_session(self) -> "Session":
        return cast("Session", self)


def request(text: RawText | None, turns: list[Message] | None = None, **fields: Any) -> Request:
    conversation = Conversation("", turns or [])
    return Request(conversation, SamplingSettings(), 1, text=text, may_drop=False, **fields)


def test_one_that_is_asked_later_does_not_overtake_what_was_asked_between() -> None:
    session, preparations = Recorded(), Preparations()
    first, second = (preparations.ask(Answer(request(RawText(text)))) for text in ("a", "bc"))
    preparations.build(first, session.as_session)
    assert (session.built, first.result(), second.done()) == (["a"], 1, False)
    preparations.build_beside(session.as_session)
    preparations.build(second, session.as_session)  # its own time has come; it is done
    assert session.built == ["a", "bc"]


def test_one_that_nobody_waits_for_is_not_built() -> None:
    session, preparations = Recorded(), Preparations()
    wanted = preparations.ask(Answer(request(RawText("a"))))
    assert wanted.cancel()
    preparations.build(wanted, session.as_session)
    assert not session.built


@pytest.mark.parametrize("is_read", [False, True])
def test_the_vocabulary_is_not_read_between_two_steps(is_read: bool) -> None:
    session, preparations = Recorded(is_read), Preparations()
    preparations.ask(Answer(request(RawText("a"), options=GRAMMAR)))
    preparations.build_beside(session.as_session)
    assert session.grammars == [GRAMMAR.grammar] * is_read
    preparations.build(preparations.ask(Answer(request(RawText("b"), options=GRAMMAR))),
                       session.as_session)  # fmt: skip
    assert session.grammars[-1:] == [GRAMMAR.grammar]


@pytest.mark.parametrize(
    "asked",
    [
        request(RawText("x" * 161)),
        request(None, [Message("user", "x" * 80), Message("assistant", "x" * 81)]),
    ],
)
def test_what_is_far_too_long_is_refused_before_it_is_turned_into_tokens(asked: Request) -> None:
    session = Recorded()
    with pytest.raises(PromptTooLargeError):
        asked_prompt.prompt_of(session.as_session, asked)
    assert not session.built
