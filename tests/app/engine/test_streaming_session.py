"""A session on a model that does not fit: refused, offered or streamed, and its answers equal."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.engine.engine import Engine
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.engine.status import Phase
from app.loading import placement as stream_plan
from app.loading.session_options import STREAM_OFF, STREAM_ON, SessionOptions
from app.loading.streaming import AgreedModels, StreamOfferError
from app.paths import Paths
from backends.base import Model, OutOfMemoryError
from backends.llamacpp import library
from models.metadata.memory_bill import bill, facts_of
from tests.fixtures.greedy import greedy_ids
from tests.fixtures.sessions import opened_on, replied

Opened = Callable[..., Session]


@pytest.fixture
def opened(home: Path, monkeypatch: pytest.MonkeyPatch, demo: Model) -> Opened:
    """Open a session on the bundled model where so many bytes are free."""

    def open_with(
        free: int, notify: Callable[[str], None] = lambda _: None, **options: str | int | None
    ) -> Session:
        monkeypatch.setattr("app.engine.session_opening.free_memory", lambda *_: free)
        given = SessionOptions(**{"model": "demo", "draft": "off", "ctx": 512, **options})  # type: ignore[arg-type]
        return open_session(given, Paths.of_this_user(), notify)

    return open_with


@pytest.fixture
def small(demo_file: Path) -> int:
    """Bytes in which the bundled model's context fits and its weights do not."""
    return round(1.45 * demo_file.stat().st_size)


def test_a_model_that_does_not_fit_is_offered_and_refused_when_off(
    opened: Opened, small: int
) -> None:
    with pytest.raises(StreamOfferError, match="demo with a context of 512 tokens") as offer:
        opened(small)
    assert offer.value.model == "demo"
    assert "--stream on" in offer.value.remedy
    with pytest.raises(OutOfMemoryError) as refused:
        opened(small, stream=STREAM_OFF)
    assert not isinstance(refused.value, StreamOfferError)
    assert "--stream" not in refused.value.remedy


def test_on_a_gpu_that_shares_memory_it_is_offered_too_unless_that_got_layers_by_number(
    home: Path, monkeypatch: pytest.MonkeyPatch, demo: Model, small: int
) -> None:
    apple = library.Device(1, "MTL", "M4", small, 16 << 30)
    monkeypatch.setattr(library, "can_offload", lambda: True)
    monkeypatch.setattr(library, "_devices", lambda: [apple])
    monkeypatch.setattr("backends.engines.engine_facts.available_memory", lambda: small)
    for layers in (None, 20):
        options = SessionOptions("demo", "off", ctx=512, backend="llamacpp", gpu_layers=layers)
        with pytest.raises(OutOfMemoryError) as refused:
            open_session(options, Paths.of_this_user(), lambda _: None)
        assert isinstance(refused.value, StreamOfferError) == (layers is None)


@pytest.mark.slow
def test_a_streamed_model_answers_as_one_in_memory(opened: Opened, small: int) -> None:
    with closing(opened(10 * small)) as session:
        whole = greedy_ids(session)
        assert session.model.info.streamed_bytes_per_token == 0
    told: list[str] = []
    with closing(opened(small, told.append, stream=STREAM_ON)) as session:
        assert any("which streams" in text for text in told)
        info = session.model.info
        assert 0 < info.streamed_bytes_per_token < info.bytes_read_per_token
        assert "larger than memory" in session.notes[0]
        assert greedy_ids(session) == whole


def test_a_model_that_fits_never_streams(opened: Opened, small: int) -> None:
    with closing(opened(10 * small, stream=STREAM_ON)) as session:
        assert session.model.info.streamed_bytes_per_token == 0
        assert session.notes == ()


def test_an_agreement_is_asked_for_once(opened: Opened, small: int) -> None:
    with pytest.raises(StreamOfferError) as offer:
        opened(small)
    AgreedModels(Paths.of_this_user().agreed_models).add(offer.value.path)
    with closing(opened(small)) as session:
        assert session.model.info.streamed_bytes_per_token > 0


@pytest.mark.slow
def test_the_app_loads_the_model_once_agreed(
    home: Path, monkeypatch: pytest.MonkeyPatch, small: int, demo: Model
) -> None:
    monkeypatch.setattr("app.engine.session_opening.free_memory", lambda *_: small)
    engine = Engine(SessionOptions("demo", "off", ctx=512), Paths.of_this_user())
    engine.start()
    try:
        engine.rank().exception(60)  # the thread has come past loading
        offer = engine.status.error
        assert engine.status.phase is Phase.FAILED
        assert isinstance(offer, StreamOfferError)
        engine.stream(offer)
        assert engine.rank().exception(60) is None
        loaded = engine.status.loaded
        assert loaded is not None
        assert loaded.info.streamed_bytes_per_token > 0
    finally:
        engine.close(30)


@pytest.mark.usefixtures("demo")  # only llama.cpp streams
def test_json_tells_what_streams(
    specchat: Callable[..., object], monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    from subprocess import CompletedProcess

    monkeypatch.setattr("app.engine.session_opening.free_memory", lambda *_: small)
    common = ("ask", "hi", "--max-tokens", "2", "--ctx", "512", "--draft", "off")
    refused = specchat(*common)
    assert isinstance(refused, CompletedProcess)
    assert refused.returncode == 1
    assert "--stream on" in refused.stderr
    answered = specchat(*common, "--json", "--stream", "on")
    assert isinstance(answered, CompletedProcess)
    report = json.loads(answered.stdout)
    stats, streamed = report["stats"], report["model"]["streamed_bytes_per_token"]
    assert streamed > 0
    memory_alone = stats["bandwidth_bytes_per_second"] / stats["bytes_per_token"]
    wall = stats["wall_tokens_per_second"]
    assert wall is None or wall < memory_alone


@pytest.fixture
def mixture(
    home: Path, monkeypatch: pytest.MonkeyPatch, tiny_llama: Callable[..., Path]
) -> Callable[[str], Session]:
    """Open a session on a mixture of 2 of 8 experts with drafters, where little is free."""
    file = tiny_llama(layers=16, experts=(8, 2))
    # plans of its passes are as large as such a model
    monkeypatch.setattr("models.metadata.memory_bill._OPERATION_BYTES", 0)
    free = bill(facts_of(file), 64).total - 1
    monkeypatch.setattr("app.engine.session_opening.free_memory", lambda *_: free)
    monkeypatch.setattr(stream_plan, "_LEAST_RESERVED", 0)

    def open_with(draft: str) -> Session:
        return opened_on(file, draft, ctx=64, stream=STREAM_ON)

    return open_with


@pytest.mark.slow
def test_fewer_experts_draft_without_memory_for_weights(mixture: Callable[[str], Session]) -> None:
    with closing(mixture("self:experts=1")) as session:
        assert session.model.info.streamed_bytes_per_token > 0
        assert not session.drafting.missing
        (first, *_) = session.drafting.handles
        assert first.model is not None
        assert first.model.info.active_experts == 1
        assert first.member.cost is not None
        drafted = replied(session).token_ids
        session.redraft("off", lambda _: None)
        assert replied(session).token_ids == drafted
