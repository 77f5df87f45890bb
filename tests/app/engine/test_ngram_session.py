"""A session that learns: the next one drafts from it, and its words stay the model's own."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.chat.conversation import Conversation
from app.engine.engine import Engine
from app.engine.reply import Request
from app.engine.session import Session
from app.engine.session_drafters import build
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.chat.message import Message
from decoding.draft import Drafter
from decoding.events import Step
from decoding.generation import Limits
from decoding.sampling.distribution import SamplingSettings
from tests.app.conftest import AskJson, Specchat
from tests.fixtures.first_hit import first_hit_of
from tests.fixtures.replied import replied, said
from tests.fixtures.sessions import GREEDY, opened_on
from tests.fixtures.sessions import replied as session_replied

pytestmark = pytest.mark.usefixtures("llamacpp")

TinyLlama = Callable[..., Path]
SHORT = ("--temperature", "0", "--max-tokens", "32")


@pytest.fixture
def model(tiny_llama: TinyLlama) -> str:
    return str(tiny_llama(seed=3))


def files() -> list[Path]:
    return sorted(Paths.of_this_user().ngrams.glob("*.ngrams"))


def reply_of(session: Session, drafter: Drafter | None, settings: SamplingSettings) -> list[Step]:
    """A reply of 32 tokens, with every draft sent that there is."""
    prompt = session.template.raw("Say hello.").tokens
    with session.context.use() as context:
        return replied(context, prompt, settings, Limits(32, frozenset()), drafter)


SETTINGS = [GREEDY, SamplingSettings(1.0, seed=4)]


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=["greedy", "sampled"])
def test_what_one_session_says_the_next_drafts(model: str, settings: SamplingSettings) -> None:
    """For a point mass a seed gives the plain reply: the same tokens, greedy and sampled."""
    with closing(opened_on(model, "ngram")) as session:
        for _ in range(2):
            session_replied(session, "Say hello.", 32, settings=settings)
    assert len(files()) == 1
    with closing(opened_on(model, "ngram")) as session:
        plain = reply_of(session, None, settings)
        drafted = reply_of(session, first_hit_of(session.drafting), settings)
        assert said(drafted) == said(plain)
        assert sum(step.accepted for step in drafted) > 16
        assert {step.drafter for step in drafted} == {"", "ngram"}


def test_who_does_not_want_it_has_nothing_kept(
    ask_json: AskJson, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_LEARN", "false")
    ask_json("hi", "--model", model, *SHORT, "--draft", "ngram")
    assert not Paths.of_this_user().ngrams.exists()


def test_a_wrong_value_is_named(
    specchat: Specchat, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_LEARN", "perhaps")
    ended = specchat("ask", "hi", "--model", model, *SHORT, "--draft", "ngram")
    assert ended.returncode == 2
    assert "SPECCHAT_LEARN" in ended.stderr


@pytest.mark.slow
def test_a_damaged_file_is_told_once_and_the_answer_is_the_same(
    specchat: Specchat, model: str
) -> None:
    asked = ("ask", "hi", "--model", model, *SHORT, "--draft", "ngram")
    answer = specchat(*asked).stdout
    files()[0].write_bytes(b"scngram1 and then nothing")
    ended, after = specchat(*asked), specchat(*asked)
    assert ended.stdout == after.stdout == answer
    assert "are damaged; the file was set aside" in ended.stderr
    assert "set aside" not in after.stderr


def test_where_replies_are_compared_none_teaches_the_next(model: str) -> None:
    accepted: dict[bool, list[int]] = {}
    with closing(opened_on(model)) as session:
        for compared in (False, True):
            with closing(
                build(session.spec("ngram"), session.environment(lambda _: None))
            ) as drafting:
                drafting.compare(compared)
                replies = [reply_of(session, first_hit_of(drafting), GREEDY) for _ in range(3)]
            accepted[compared] = [sum(step.accepted for step in steps) for steps in replies]
    assert accepted[False][2] > accepted[False][0]
    assert accepted[True] == [accepted[False][0]] * 3
    assert files() == []


def test_an_answer_with_drafters_of_its_own_is_compared_and_others_are_not(model: str) -> None:
    """A race answers the same question twice; the chat goes on learning afterwards."""
    sessions: list[Session] = []

    def recorded(*arguments: Any) -> Session:
        sessions.append(open_session(*arguments))
        return sessions[-1]

    asked = Request(Conversation("", [Message("user", "hi")]), GREEDY, 4)
    options = SessionOptions(model=model, draft="ngram", threads=1)
    engine = Engine(options, Paths.of_this_user(), recorded)
    engine.start()
    found: list[bool] = []
    try:
        for draft in (None, "off", "ngram", None):
            answer = engine.ask(replace(asked, draft=draft))
            assert answer.wait(60)
            assert answer.error is None
            handles = sessions[0].drafting.handles
            found += [handle.learned.drafter.is_forgetful for handle in handles if handle.learned]
    finally:
        engine.close(30.0)
    assert found == [False, True, False]
