"""Prompts are built, and tokens counted, in turn, and beside an answer without delaying it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.answer import Answer
from app.engine.prompt_builder import PromptBuilder
from app.engine.reply import Request
from decoding.constraint.grammar import Grammar, GrammarKind
from decoding.sampling.settings import SamplingSettings

if TYPE_CHECKING:
    from app.engine.session import Session

GRAMMAR = ReplyOptions(grammar=Grammar(GrammarKind.JSON_OBJECT))


@dataclass(slots=True)
class Recorded:
    """A session that tells which prompts it built and which grammars it looked at.

    Its tokenizer takes a second of its own clock for a text.
    """

    has_grammar_vocabulary: bool = False
    built: list[str] = field(default_factory=list[str])
    grammars: list[object] = field(default_factory=list[object])
    now: float = 0.0

    def prompt(self, request: Request) -> tuple[object, int]:
        assert isinstance(request.text, str)
        self.built.append(request.text)
        return SimpleNamespace(tokens=[0] * len(self.built[-1]), form=None, note=""), 0

    def constraint(self, prompt: object, request: Request) -> None:
        self.grammars.append(request.options.grammar)

    def check(self, prompt: Any, request: Request, *, is_quick: bool) -> None:
        from app.engine.session import Session

        Session.check(self.as_session, prompt, request, is_quick=is_quick)

    def count(self, text: str) -> int:
        self.now += 1.0
        return len(text)

    @property
    def as_session(self) -> "Session":
        return cast("Session", self)


def request(text: str, **fields: Any) -> Request:
    return Request(Conversation(), SamplingSettings(), 1, text=text, may_drop=False, **fields)


def test_one_that_is_asked_later_does_not_overtake_what_was_asked_between() -> None:
    session, builder = Recorded(), PromptBuilder()
    first, second = (builder.ask(Answer(request(text))) for text in ("a", "bc"))
    builder.work(first, session.as_session)
    assert (session.built, first.result(), second.done()) == (["a"], 1, False)
    builder.work_beside(session.as_session)
    builder.work(second, session.as_session)  # its own time has come; it is done
    assert session.built == ["a", "bc"]


def test_what_nobody_waits_for_is_neither_built_nor_counted() -> None:
    session, builder = Recorded(), PromptBuilder()
    for asked in (Answer(request("a")), "a"):
        wanted = builder.ask(asked)
        assert wanted.cancel()
        builder.work(wanted, session.as_session)
    assert not session.built
    assert session.now == 0.0


def test_a_prompt_is_built_once_for_each_model() -> None:
    session, builder, answer = Recorded(), PromptBuilder(), Answer(request("a"))
    builder.work(builder.ask(answer), session.as_session)
    prompt = builder.prompt(answer, session.as_session)
    assert builder.prompt(answer, session.as_session) is prompt
    assert session.built == ["a"]
    builder.forget()
    assert builder.take(answer, session.as_session) is not prompt
    assert session.built == ["a", "a"]
    assert not builder._built


@pytest.mark.parametrize("is_read", [False, True])
def test_the_vocabulary_is_not_read_between_two_steps(is_read: bool) -> None:
    session, builder = Recorded(is_read), PromptBuilder()
    builder.ask(Answer(request("a", options=GRAMMAR)))
    builder.work_beside(session.as_session)
    assert session.grammars == [GRAMMAR.grammar] * is_read
    wanted = builder.ask(Answer(request("b", options=GRAMMAR)))
    builder.work(wanted, session.as_session)
    assert session.grammars[-1:] == [GRAMMAR.grammar]


def counting(texts: Sequence[str]) -> tuple[Recorded, PromptBuilder, list[int]]:
    session, done = Recorded(), list[int]()
    builder = PromptBuilder(lambda: session.now)
    for text in texts:
        builder.ask(text).add_done_callback(lambda future: done.append(future.result()))
    return session, builder, done


def test_all_texts_are_counted_while_nothing_is_answered() -> None:
    session, builder, done = counting(["a", "bc"])
    last = builder.ask("def")
    builder.work(last, session.as_session)
    assert (done, last.result()) == ([1, 2], 3)


def test_a_text_is_counted_later_where_no_model_is_loaded_and_a_prompt_fails() -> None:
    session, builder, done = counting(["a"])
    text, prompt = builder.ask("bc"), builder.ask(Answer(request("a")))
    builder.fail(text, ValueError("no model"))
    builder.fail(prompt, ValueError("no model"))
    assert isinstance(prompt.exception(), ValueError)
    builder.work(text, session.as_session)
    assert (done, text.result()) == ([1], 2)


def test_counting_takes_a_small_share_of_an_answer() -> None:
    session, builder, done = counting(["a", "bc"])
    builder.work_beside(session.as_session)
    assert done == [1]
    session.now += 40.0
    builder.work_beside(session.as_session)
    assert done == [1]
    session.now += 10.0
    builder.work_beside(session.as_session)
    assert done == [1, 2]
