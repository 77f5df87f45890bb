"""Memory that a streamed model and its drafters share, in sessions on the bundled model."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.engine import session_drafters, weight_budget
from app.engine.session import Session
from app.loading import placement as stream_plan
from app.loading.session_options import STREAM_ON
from app.paths import Paths
from backends.base import Model
from decoding.estimation.cost import Measured
from tests.fixtures.sessions import opened_on, replied

pytestmark = pytest.mark.usefixtures("llamacpp")

ALMOST_ALL = "self:skip=1-28"
"""A copy of two of the thirty layers, which takes no time to make."""

Opened = Callable[[str], Session]


@pytest.fixture
def opened(home: Path, demo: Model, demo_file: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Open a session where all but a tenth of the bundled model's weights fit."""
    monkeypatch.setattr(stream_plan, "_LEAST_RESERVED", 1_000_000)
    # the vocabulary takes a quarter as much as this model
    monkeypatch.setattr("models.metadata.memory_bill._BPE_TOKEN", 0)
    free = round(1.4 * demo_file.stat().st_size)
    monkeypatch.setattr("app.engine.session_opening.free_memory", lambda *_: free)
    monkeypatch.setattr(
        "app.learned.calibrations.calibrate", lambda *_, **__: Measured({1: 0.02, 63: 0.03})
    )

    def open_with(draft: str) -> Session:
        return opened_on("demo", draft, ctx=512, stream=STREAM_ON)

    return open_with


def _answered(session: Session) -> list[int]:
    return replied(session, "The capital of France is", 64).token_ids


def _left_over(session: Session) -> int:
    """Bytes of the budget that hold neither weights nor drafters."""
    assert session.budget is not None
    info = session.model.info
    held = info.bytes_read_per_token - info.streamed_bytes_per_token
    return session.budget.bytes - held - session.drafting.memory_bytes


@pytest.mark.slow
def test_a_self_drafter_is_made_and_gets_its_memory_and_gives_it_back(opened: Opened) -> None:
    with closing(opened(ALMOST_ALL)) as session:
        assert session.drafting.missing == ""
        assert session.drafting.names[0] == ALMOST_ALL
        beside = session.model.info.streamed_bytes_per_token
        assert 0 <= _left_over(session) < 5_000_000
        session.redraft("off", lambda _: None)
        assert session.model.info.streamed_bytes_per_token < beside
        assert 0 <= _left_over(session) < 5_000_000
        session.redraft(f"vote(lookup,{ALMOST_ALL})", lambda _: None)
        assert session.model.info.streamed_bytes_per_token == beside


def test_one_that_does_not_fit_is_not_made(opened: Opened) -> None:
    with closing(opened("lookup,self:q8_0")) as session:
        assert session.drafting.names == ["lookup"]
        assert "memory is short" in session.drafting.missing
        assert list(Paths.of_this_user().self_drafts.glob("*.gguf")) == []
        assert 0 <= _left_over(session) < 5_000_000


def test_memory_that_no_drafter_took_holds_weights(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    def room(*_: object) -> int:
        given.append(20_000_000)
        return given[-1]

    monkeypatch.setattr(weight_budget, "best_room", room)
    with closing(opened("auto")) as session:
        assert given
        assert 0 <= _left_over(session) < 5_000_000


@pytest.mark.slow
def test_drafters_that_cannot_be_built_leave_the_present_ones_and_their_memory(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(ALMOST_ALL)) as session:
        before, drafting = session.model.info, session.drafting

        def fail(*_: object) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr(weight_budget, "build", fail)
        with pytest.raises(RuntimeError):
            session.redraft("lookup", lambda _: None)
        assert session.drafting is drafting
        assert session.model.info == before


@pytest.mark.slow
@pytest.mark.parametrize(("displaced", "is_freed"), [(0.01, True), (1e-6, False)])
def test_a_drafter_that_gains_less_than_weights_in_its_place_is_freed_in_mid_answer(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, displaced: float, is_freed: bool
) -> None:
    with closing(opened("off")) as session:
        plain = _answered(session)
        all_held = session.model.info.streamed_bytes_per_token
    monkeypatch.setattr(weight_budget, "displaced_seconds", lambda *_: displaced)
    monkeypatch.setattr(session_drafters, "_ENOUGH_STEPS", 15.0)
    with closing(opened(f"ngram,jacobi,{ALMOST_ALL}")) as session:
        controller = session.drafting.controller
        assert session.model.info.streamed_bytes_per_token > all_held
        # What two of thirty layers draft is wrong: it gains nothing.
        assert _answered(session) == plain
        assert (session.drafting.names == ["ngram", "jacobi"]) is is_freed
        assert session.drafting.is_reduced is is_freed
        if is_freed:
            assert session.model.info.streamed_bytes_per_token == all_held
            assert "weights in its memory gain more" in session.drafting.status.reason
            assert session.drafting.controller is not controller
            assert _answered(session) == plain
