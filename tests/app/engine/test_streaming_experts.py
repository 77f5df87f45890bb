"""A session on a mixture of experts that streams, which drafts for itself with fewer experts."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.engine.reply import new_reply
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading import placement as stream_plan
from app.loading.session_options import STREAM_ON, SessionOptions
from app.paths import Paths
from decoding.sampling.distribution import SamplingSettings
from models.metadata.memory_bill import bill, facts_of

pytestmark = pytest.mark.usefixtures("llamacpp")


@pytest.fixture
def opened(
    home: Path, monkeypatch: pytest.MonkeyPatch, tiny_llama: Callable[..., Path]
) -> Callable[[str], Session]:
    """Open a session on a mixture of 2 of 8 experts with drafters, where little is free."""
    file = tiny_llama(layers=16, experts=(8, 2))
    # plans of its passes are as large as such a model
    monkeypatch.setattr("models.metadata.memory_bill._OPERATION_BYTES", 0)
    free = bill(facts_of(file), 64).total - 1
    monkeypatch.setattr("app.engine.session_opening.free_memory", lambda *_: free)
    monkeypatch.setattr(stream_plan, "_LEAST_RESERVED", 0)
    monkeypatch.setattr(stream_plan, "_FEWEST_RESERVED", 0)

    def open_with(draft: str) -> Session:
        options = SessionOptions(str(file), draft=draft, ctx=64, threads=1, stream=STREAM_ON)
        return open_session(options, Paths.of_this_user(), lambda _: None)

    return open_with


def greedy(session: Session) -> list[int]:
    reply = new_reply()
    settings = SamplingSettings(temperature=0.0)
    for _ in session.stream(session.raw_prompt("hi"), settings, 24, reply, lambda: False):
        pass
    return reply.token_ids


@pytest.mark.slow
def test_fewer_experts_draft_without_memory_for_weights(opened: Callable[[str], Session]) -> None:
    with closing(opened("self:experts=1")) as session:
        assert session.model.info.streamed_bytes_per_token > 0
        assert not session.drafting.missing
        (first, *_) = session.drafting.handles
        assert first.model is not None
        assert first.model.info.active_experts == 1
        assert first.member.cost is not None
        drafted = greedy(session)
        session.redraft("off", lambda _: None)
        assert greedy(session) == drafted
