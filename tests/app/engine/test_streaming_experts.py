"""A session on a mixture of experts that streams, which drafts for itself with fewer experts."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.engine.session import Session
from app.loading import placement as stream_plan
from app.loading.session_options import STREAM_ON
from models.metadata.memory_bill import bill, facts_of
from tests.fixtures.sessions import opened_on, replied

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
        return opened_on(file, draft, ctx=64, stream=STREAM_ON)

    return open_with


@pytest.mark.slow
def test_fewer_experts_draft_without_memory_for_weights(opened: Callable[[str], Session]) -> None:
    with closing(opened("self:experts=1")) as session:
        assert session.model.info.streamed_bytes_per_token > 0
        assert not session.drafting.missing
        (first, *_) = session.drafting.handles
        assert first.model is not None
        assert first.model.info.active_experts == 1
        assert first.member.cost is not None
        drafted = replied(session).token_ids
        session.redraft("off", lambda _: None)
        assert replied(session).token_ids == drafted
