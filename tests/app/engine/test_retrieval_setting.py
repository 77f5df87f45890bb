"""Retrieval in a session: asked for, in auto, switched off; the app indexes what was said."""

import time
from collections.abc import Iterator
from contextlib import closing
from threading import Event

import pytest

from app.chat.conversation import Conversation
from app.engine import idle_tasks as indexing
from app.engine.engine import Engine
from app.engine.idle_tasks import Indexing
from app.engine.reply import Request
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import Context, Model
from backends.chat.message import Message
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.corpora import corpus_of, document
from tests.fixtures.knowing import drafters
from tests.fixtures.scripted import ScriptedModel, opened

PATIENCE_SECONDS = 60


@pytest.fixture
def context(demo: Model) -> Iterator[Context]:
    with closing(demo.open(64)) as found:
        yield found


@pytest.mark.slow
def test_switched_off_it_is_left_out_and_says_why(
    demo: Model, context: Context, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_RETRIEVAL", "false")
    with closing(drafters("lookup,retrieval", demo, context, paths)) as drafting:
        assert drafting.names == ["lookup"]
        assert "switched off" in drafting.missing
    with closing(drafters("auto", demo, context, paths)) as drafting:
        assert "retrieval" not in drafting.names
        assert drafting.missing == ""


def test_switched_off_the_index_is_deleted(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus_of(paths.retrieval / "vocabulary", [document(1, [1, 2, 3])]).close()
    session = opened(ScriptedModel(["a"]))(SessionOptions(), paths, lambda text: None)
    monkeypatch.setenv("SPECCHAT_RETRIEVAL", "false")
    with closing(session), closing(Indexing.of(session)) as off:
        assert not off.is_due
        off.changed()
        assert not off.is_due
    assert not paths.retrieval.exists()


def test_the_chat_that_is_answered_is_left_out(demo: Model, context: Context, paths: Paths) -> None:
    with closing(drafters("retrieval", demo, context, paths)) as drafting:
        (one,) = drafting.handles
        assert one.corpus is not None
        drafting.leave_out(7)
        assert one.corpus.without == 7
        drafting.leave_out(None)
        assert one.corpus.without is None


def test_the_app_indexes_after_an_answer_and_answers_while_it_does(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "_INDEX_AFTER_SECONDS", 0.01)
    engine = Engine(SessionOptions(draft="off"), paths, opened(ScriptedModel(["word "] * 3)))
    engine.start()
    try:
        with closing(History.open(paths.history)) as history:
            chat = history.create("scripted")
            history.add(chat, "user", "hi")
            history.add(chat, "assistant", "word word word", "done")
        conversation = Conversation("", [Message("user", "hi")])
        request = Request(conversation, SamplingSettings(temperature=0.0), 10, chat=chat)
        for _ in range(3):
            assert engine.ask(request).wait(PATIENCE_SECONDS)
        end = time.monotonic() + PATIENCE_SECONDS
        while not list(paths.retrieval.rglob("*.segment")) and time.monotonic() < end:
            Event().wait(0.01)
        assert engine.ask(request).wait(PATIENCE_SECONDS)
    finally:
        assert engine.close(PATIENCE_SECONDS)
    assert list(paths.retrieval.rglob("*.segment"))
