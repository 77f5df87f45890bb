"""The engine with a server in place of a model: answers, errors, other models, and a retry."""

from collections.abc import Iterator

import pytest

from app.chat.conversation import Conversation
from app.engine.engine import Engine
from app.engine.reply import Request
from app.engine.status import Phase
from app.loading.session_options import SessionOptions
from backends.base import ServerError, UsageError
from backends.chat.message import Message
from decoding.events import FinishReason
from decoding.sampling.settings import SamplingSettings
from tests.app.engine.conftest import Start
from tests.fixtures.recorded_servers import DONE, HI, RECORDED, Script, chunk, replaying, usage

SAID = [*map(chunk, HI), chunk({}, "stop", usage=usage()), DONE]
ASKED = Request(Conversation(turns=[Message("user", "hi")]), SamplingSettings(), 64)


@pytest.fixture
def server() -> Iterator[Script]:
    with replaying(Script(events=SAID)) as script:
        yield script


def engine_on(start: Start, server: Script) -> Engine:
    return start(options=SessionOptions(backend="remote", url=server.url))


def test_an_answer_and_its_figures(start: Start, server: Script) -> None:
    server.models = RECORDED["llama-server"].models
    server.events = RECORDED["llama-server"].events
    engine = engine_on(start, server)
    answer = engine.ask(ASKED)
    assert answer.wait(60)
    assert (answer.text, answer.finish_reason) == ("Hello there", FinishReason.STOP)
    assert (answer.model, answer.token_ids) == ("m", ())
    assert answer.metrics is not None
    assert answer.metrics.by_drafter["the server"].accepted == 9
    loaded = engine.status.loaded
    assert loaded is not None
    assert (loaded.is_remote, loaded.context_size) == (True, 4096)


def test_an_error_keeps_what_was_said_and_the_next_answer_comes(
    start: Start, server: Script
) -> None:
    engine = engine_on(start, server)
    server.events, server.is_cut = SAID[:1], True
    cut = engine.ask(ASKED)
    assert cut.wait(60)
    assert isinstance(cut.error, ServerError)
    assert (cut.text, cut.finish_reason) == ("Hello", None)
    assert engine.status.phase is Phase.READY
    server.events, server.is_cut = SAID, False
    again = engine.ask(ASKED)
    assert again.wait(60)
    assert (again.text, again.error) == ("Hello there", None)


def test_a_server_that_starts_later_is_asked_again(start: Start, server: Script) -> None:
    listed, server.models = server.models, {"data": []}
    engine = engine_on(start, server)
    failed = engine.ask(ASKED)
    assert failed.wait(60)
    assert isinstance(failed.error, ServerError)
    assert engine.status.phase is Phase.FAILED
    server.models = listed
    engine.retry()
    assert engine.prepare(engine.ask(ASKED)).result(60) == 0
    assert engine.status.phase is Phase.READY


def test_another_model_is_used_from_then_on(start: Start, server: Script) -> None:
    server.models = {"data": [{"id": name, "max_model_len": 9} for name in "ab"]}
    engine = engine_on(start, server)
    engine.load("b")
    assert engine.ask(ASKED).wait(60)
    assert [one["model"] for one in server.asked] == ["b"]
    assert engine.remote_models == ("a", "b")


def test_what_only_a_model_here_can_is_refused(start: Start, server: Script) -> None:
    engine = engine_on(start, server)
    with pytest.raises(UsageError, match="cannot be counted"):
        engine.count("hello").result(60)
    plain = Request(ASKED.conversation, ASKED.settings, 64, draft="off")
    answer = engine.ask(plain)
    assert answer.wait(60)
    assert isinstance(answer.error, UsageError)
    assert engine.drafters() is None
