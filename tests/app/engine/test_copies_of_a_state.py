"""A model with a running state keeps copies of it only once something may draft."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.engine.session import Session
from app.engine.session_ranking import rank_for
from app.learned import calibrations
from app.loading.target_context import ContextInUseError
from backends.base import Context, OutOfMemoryError
from decoding.estimation.cost import Measured
from tests.fixtures.sessions import opened_on, replied
from tests.fixtures.tiny.kinds import Tiny

CURVE = Measured({1: 0.02, 8: 0.025})
PROMPT = "one two one two one two"


@pytest.fixture(params=["llamacpp", "mlx"])
def model(request: pytest.FixtureRequest) -> Path:
    """A small model with a running state, of each engine."""
    if request.param == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
        small: Callable[[str], Path] = request.getfixturevalue("small_mlx")
        return small("hybrid")
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    tiny: Tiny = request.getfixturevalue("tiny")
    return tiny("qwen35")


of_llamacpp = pytest.mark.parametrize("model", ["llamacpp"], indirect=True)


@pytest.fixture
def undrafted(model: Path) -> Iterator[Session]:
    with closing(opened_on(model, ctx=512)) as session:
        yield session


def test_none_are_kept_while_nothing_drafts(undrafted: Session, model: Path) -> None:
    assert undrafted.context.facts.max_rollback == 0
    with closing(opened_on(model, "lookup", ctx=512)) as drafted:
        assert drafted.context.facts.max_rollback > 0
        copies = drafted.context.facts.state_bytes / undrafted.context.facts.state_bytes
        assert copies == (
            2 if undrafted.model.info.backend == "mlx" else 1 + drafted.context.facts.max_rollback
        )
        assert replied(drafted, PROMPT).token_ids == replied(undrafted, PROMPT).token_ids


def test_with_a_drafter_they_come_and_what_was_read_stays(undrafted: Session, model: Path) -> None:
    plain = replied(undrafted, PROMPT)
    held = list(undrafted.context.facts.tokens)
    undrafted.redraft("lookup", lambda _: None)
    assert undrafted.context.facts.max_rollback > 0
    with closing(opened_on(model, "lookup", ctx=512)) as drafted:
        assert undrafted.context.facts.state_bytes == drafted.context.facts.state_bytes
    assert list(undrafted.context.facts.tokens) == held
    assert replied(undrafted, PROMPT).token_ids == plain.token_ids
    assert undrafted.drafting.missing == ""
    undrafted.redraft("off", lambda _: None)
    assert undrafted.context.facts.max_rollback > 0, "they stay for the next drafter"


def test_what_continues_is_as_if_nothing_had_changed(undrafted: Session) -> None:
    """The state itself was kept, and not read anew."""
    replied(undrafted, PROMPT, 8)
    with undrafted.context.use() as context:
        tokens = list(context.tokens)
        expected = context.forward([75], 1).copy()
        context.truncate(0)
        context.forward(tokens, 1)
    undrafted.context.be_ready_to_draft()
    with undrafted.context.use() as context:
        assert list(context.tokens) == tokens
        assert abs(context.forward([75], 1) - expected).max() < 1e-3


@of_llamacpp
def test_during_an_answer_they_wait_for_its_end(undrafted: Session) -> None:
    present = undrafted.drafting

    def redraft(_: object) -> None:
        with pytest.raises(ContextInUseError, match="no copies of the model's running state"):
            undrafted.redraft("lookup", lambda _: None)
        assert undrafted.drafting is present

    replied(undrafted, PROMPT, 2, redraft)
    undrafted.redraft("off", lambda _: None)
    undrafted.redraft("lookup", lambda _: None)
    assert undrafted.context.facts.max_rollback > 0


@of_llamacpp
@pytest.mark.parametrize("is_read", [False, True])
def test_costs_are_measured_where_there_are_copies(undrafted: Session, is_read: bool) -> None:
    if is_read:
        replied(undrafted, PROMPT, 4)
    held = list(undrafted.context.facts.tokens)
    with undrafted.context.for_measuring(64) as measured:
        assert measured.max_rollback > 0
        measured.forward([*range(40, 60)], 0)
        measured.forward([60, 61, 62], 1)
        measured.truncate(21)
    assert undrafted.context.facts.max_rollback == 0, "no answer needs them"
    assert list(undrafted.context.facts.tokens) == held


@of_llamacpp
def test_without_memory_for_a_second_context_the_first_gets_copies(
    undrafted: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_any = undrafted.model.open

    def open_whole(n_ctx: int, *, drafts: bool = True) -> Context:
        if n_ctx < undrafted.context.facts.n_ctx:
            raise OutOfMemoryError("cannot open a context", "memory is short")
        return open_any(n_ctx, drafts=drafts)

    monkeypatch.setattr(undrafted.model, "open", open_whole)
    with undrafted.context.for_measuring(64) as measured:
        assert measured.n_ctx == undrafted.context.facts.n_ctx
        assert measured.max_rollback == undrafted.context.facts.max_rollback > 0
    with (
        undrafted.context.use(),
        pytest.raises(ContextInUseError, match="not enough memory for a second one"),
        undrafted.context.for_measuring(64),
    ):
        pass


@of_llamacpp
def test_drafters_are_ranked_by_passes_that_can_be_taken_back(
    undrafted: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = undrafted.paths.calibrations
    shutil.rmtree(stored, ignore_errors=True)
    depths: list[int] = []

    def calibrate(context: Context, *_: object, **__: object) -> Measured:
        depths.append(context.max_rollback)
        return CURVE

    monkeypatch.setattr(calibrations, "calibrate", calibrate)
    ranking = rank_for(undrafted)
    shutil.rmtree(stored)
    assert depths == [undrafted.context.facts.max_rollback]
    assert depths[0] > 0
    assert ranking.plain_seconds == CURVE.seconds[1]


@pytest.mark.usefixtures("llamacpp")
def test_other_models_are_opened_once(tiny: Tiny) -> None:
    with closing(opened_on(tiny("llama"))) as session, session.context.use() as context:
        session.redraft("lookup", lambda _: None)
        assert session.context.beside(lambda own: own) is context
