"""Memory is planned before anything is loaded: drafters are given up before context."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading.placement import drafter_context, open_context, plan
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import DraftUnavailableError, Model, OutOfMemoryError, UsageError
from backends.files.attention import Attention, Layers
from models.metadata.memory_bill import ModelFacts, bill, facts_of

GIGABYTE = 1_000_000_000

FACTS = ModelFacts(
    5 * GIGABYTE, 128_256, 4096, 14_336, 131_072, Attention((Layers(32, 8, 128, 128),))
)
"""An 8B model: a gigabyte of cache at 8,192 tokens."""

SMALL = ModelFacts(GIGABYTE, 128_256, 2048, 8192, 131_072, Attention((Layers(16, 8, 64, 64),)))


def test_what_fits_gets_the_usual_context_and_leaves_the_rest_to_drafters() -> None:
    planned = plan("big", FACTS, None, 8192, 10 * GIGABYTE)
    assert (planned.n_ctx, planned.usual) == (8192, 8192)
    assert planned.room == 10 * GIGABYTE - bill(FACTS, 8192).total


def test_the_usual_context_is_no_longer_than_the_models_own() -> None:
    short = ModelFacts(1, 1, 1, 1, 2048, Attention(()))
    assert plan("short", short, None, 8192, GIGABYTE).n_ctx == 2048


def test_the_context_is_halved_only_when_the_model_alone_does_not_fit() -> None:
    free = bill(FACTS, 4096).total
    planned = plan("big", FACTS, None, 8192, free)
    assert (planned.n_ctx, planned.usual, planned.room) == (4096, 8192, 0)


def test_a_model_that_cannot_fit_is_refused_with_figures() -> None:
    with pytest.raises(OutOfMemoryError) as refused:
        plan("big", FACTS, None, 8192, 3 * GIGABYTE)
    assert "big with a context of 512 tokens needs 5.1 GB of memory" in str(refused.value)
    assert "weights 5.0 GB" in refused.value.why
    assert "3.0 GB are free" in refused.value.why
    assert "smaller model" in refused.value.remedy


def test_a_context_asked_for_is_not_halved_but_another_is_offered() -> None:
    free = bill(FACTS, 4096).total
    with pytest.raises(OutOfMemoryError) as refused:
        plan("big", FACTS, 8192, 8192, free)
    assert refused.value.remedy == "Use --ctx 4096 or less."
    assert plan("big", FACTS, 4096, 8192, free).n_ctx == 4096


def test_a_gpu_or_a_context_the_model_lacks_is_left_to_the_backend() -> None:
    assert plan("big", FACTS, None, 8192, None).room is None
    assert plan("big", FACTS, 1 << 30, 8192, GIGABYTE).n_ctx == 1 << 30


def test_a_drafter_gets_the_targets_context_where_there_is_room() -> None:
    assert drafter_context("1b", SMALL, 8192, 10 * GIGABYTE) == (8192, [])
    assert drafter_context("1b", SMALL, 8192, None) == (8192, [])


def test_a_drafter_is_shrunk_and_then_given_up() -> None:
    n_ctx, notes = drafter_context("1b", SMALL, 8192, bill(SMALL, 2048).total)
    assert n_ctx == 2048
    assert notes == ["memory is short: 1b drafts up to 2,048 tokens of context, not 8,192"]
    with pytest.raises(DraftUnavailableError, match="1b is not used: memory is short") as refused:
        drafter_context("1b", SMALL, 8192, GIGABYTE)
    assert "it needs 1.1 GB (weights 1.0 GB" in refused.value.why
    assert "1.0 GB are free beside the model" in refused.value.why


def test_a_context_is_halved_where_only_the_engine_knows_what_fits(
    demo: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.llamacpp.model.available_memory", lambda: 100_000_000)
    planned = plan("demo", facts_of(demo.info.path), None, 8192, None)
    context, notes = open_context(demo, planned, None)
    assert context.n_ctx == 2048
    assert notes == ["memory is short: the context is 2,048 tokens instead of 8,192"]
    context.close()
    with pytest.raises(OutOfMemoryError):
        open_context(demo, planned, 8192)


@pytest.fixture
def opened(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, SessionOptions], Session]:
    """Open a session on a machine with so many bytes free."""

    def open_with(free: int, options: SessionOptions) -> Session:
        monkeypatch.setattr("app.engine.session_opening.free_memory", lambda *_: free)
        return open_session(options, Paths.of_this_user(), lambda _: None)

    return open_with


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_a_session_gives_up_the_drafter_and_keeps_its_context(
    opened: Callable[[int, SessionOptions], Session], tiny_llama: Callable[..., Path]
) -> None:
    target, drafter = tiny_llama(layers=4), tiny_llama(layers=1)
    options = SessionOptions(model=str(target), draft=f"lookup,{drafter}")
    free = bill(facts_of(target), 512).total + 100_000
    with closing(opened(free, options)) as session:
        assert session.context.n_ctx == 512
        assert session.drafting.names == ["lookup"]
        assert "is not used: memory is short" in session.drafting.missing
    with closing(opened(10 * free, options)) as session:
        assert session.drafting.names[:2] == ["lookup", str(drafter)]
        assert session.notes == ()


@pytest.mark.usefixtures("llamacpp")
def test_a_session_that_cannot_fit_loads_nothing(
    opened: Callable[[int, SessionOptions], Session],
    tiny_llama: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("something was loaded")

    monkeypatch.setattr("app.loading.checked_loader.ProvenModels.load", load)
    with pytest.raises(OutOfMemoryError, match="0 MB are free"):
        opened(1000, SessionOptions(model=str(tiny_llama())))


@pytest.mark.usefixtures("llamacpp")
def test_a_context_the_model_lacks_is_called_so(
    opened: Callable[[int, SessionOptions], Session], tiny_llama: Callable[..., Path]
) -> None:
    with pytest.raises(UsageError, match="out of range"):
        opened(10 * GIGABYTE, SessionOptions(model=str(tiny_llama()), ctx=1 << 30))
