"""What runs a model changes: it is measured once, and told if it became slower or says another."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from app.engine.session import Session
from app.engine.upgrade_guard import Guarding, Setup, findings
from app.learned.calibrations import ProcessorTimes
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import Logits
from tests.app.conftest import Specchat
from tests.fixtures.clock import Clock
from tests.fixtures.scripted import ScriptedContext, ScriptedModel, opened

LONG_IDLE = 3600.0
WORDS = [f"word{number} " for number in range(60)]
OLD, NEW = "llama-cpp-python 0.3.35 CPU : AVX2 = 1", "llama-cpp-python 0.3.36 CPU : AVX2 = 1"
BACK = "To go back: uv pip install llama-cpp-python==0.3.35, then uv run --no-sync specchat."


class Timed(ScriptedContext):
    """Each pass takes as long by its clock; at a place of the script another word leads."""

    clock: Clock
    seconds: float
    lead = 9.0
    at = -1

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        self.clock.now += self.seconds
        rows = super().forward(tokens, n_logits)
        if n_logits and self._said(self.length) == self.at:
            other = rows[-1].copy()
            other[self._model.script[self.at + 1]] = 9.0 + self.lead
            rows[-1] = other
        return rows


class TimedModel(ScriptedModel):
    def __init__(self, engine: str, rate: float, lead: float = 0.0, at: int = -1) -> None:
        super().__init__(WORDS)
        self.info = replace(self.info, engine=engine)
        self.clock, self.at, self.lead, self.plain_rate = Clock(), at, lead, rate

    def open(self, n_ctx: int, *, drafts: bool = True, sequences: int = 1) -> Timed:
        context = Timed(self, n_ctx)
        context.clock, context.seconds = self.clock, 1.0 / self.plain_rate
        context.at, context.lead = self.at, self.lead
        return context


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessorTimes, "load_until", lambda *_: 0.0)


pytestmark = pytest.mark.usefixtures("home", "quiet")


def session_of(model: ScriptedModel) -> closing[Session]:
    return closing(opened(model)(SessionOptions(draft="off"), Paths.of_this_user(), lambda _: None))


def checked(model: TimedModel, is_wanted: Callable[[], bool] = lambda: True) -> str:
    """What is told after some idle time, "" for nothing."""
    told = list[str]()
    with session_of(model) as session:
        Guarding(session, lambda: "", told.append, model.clock).run(is_wanted)
    return "".join(told)


def test_the_first_use_is_measured_and_nothing_is_told() -> None:
    model = TimedModel(OLD, 3.0)
    assert checked(model) == ""
    assert model.clock.now - 100.0 < 30.0, "half a minute, however slow it is"
    assert findings(Paths.of_this_user()) == []


def test_a_slower_engine_is_told_once_with_the_way_back() -> None:
    checked(TimedModel(OLD, 20.0))
    told = checked(TimedModel(NEW, 12.0))
    assert "llama-cpp-python 0.3.36 in place of 0.3.35" in told
    assert "plain decoding has 12 ± " in told
    assert "not 20 ± " in told
    assert told.endswith(BACK)
    again = TimedModel(NEW, 12.0)
    assert checked(again) == ""
    assert again.passes == 0, "what was measured is not measured again"
    assert findings(Paths.of_this_user()) == [told]


def test_a_faster_engine_and_one_within_the_error_are_not_told() -> None:
    checked(TimedModel(OLD, 20.0))
    assert checked(TimedModel(NEW, 30.0)) == ""
    assert checked(TimedModel(NEW.replace("36", "37"), 29.0)) == ""
    assert findings(Paths.of_this_user()) == []


@pytest.mark.parametrize(
    ("lead", "cause"), [(0.25, "0.25 logits, a near-tie"), (4.0, "4 logits, more than rounding")]
)
def test_another_text_is_told_with_how_near_it_was(lead: float, cause: str) -> None:
    checked(TimedModel(OLD, 20.0))
    told = checked(TimedModel(NEW, 20.0, lead=lead, at=7))
    assert f"an answer at temperature 0 is another, from token 8 by {cause}" in told
    assert "tok/s" not in told


def test_who_goes_back_is_told_no_more() -> None:
    checked(TimedModel(OLD, 20.0))
    checked(TimedModel(NEW, 12.0))
    back = TimedModel(OLD, 20.0)
    assert checked(back) == ""
    assert back.passes == 0
    assert findings(Paths.of_this_user()) == []


def test_drivers_devices_and_files_are_changes_too() -> None:
    before = Setup(NEW, "GPU: A", "570.1", "x")
    assert replace(before, driver="580.2").changes(before) == (
        "driver 580.2 in place of 570.1",
        "",
    )
    assert replace(before, device="GPU: B", file="y").changes(before)[0] == (
        "device GPU: B in place of GPU: A, another file in its place"
    )
    rebuilt = replace(before, engine=f"{NEW} CUDA : ARCHS = 900")
    assert rebuilt.changes(before) == ("another build of the engine", "")
    mlx = replace(before, engine="MLX 0.31.0, mlx-lm 0.31.2")
    newer = replace(mlx, engine="MLX 0.32.4, mlx-lm 0.31.2")
    assert "mlx==0.31.0 mlx-lm==0.31.2," in newer.changes(mlx)[1]


def test_a_key_ends_it_at_once_and_nothing_is_kept() -> None:
    model, left = TimedModel(OLD, 20.0), iter(range(30))
    checked(model, lambda: next(left, None) is not None)
    assert model.passes <= 32
    assert not Paths.of_this_user().upgrades.exists()


def test_a_busy_machine_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessorTimes, "load_until", lambda *_: 0.3)
    model = TimedModel(OLD, 20.0)
    with session_of(model) as session:
        work = Guarding(session, lambda: "", print, model.clock)
        work.run(lambda: True)
        assert (work.due_in(LONG_IDLE) or 0.0) > 0.0, "later"
    assert not Paths.of_this_user().upgrades.exists()


def test_a_damaged_record_is_measured_anew() -> None:
    checked(TimedModel(OLD, 20.0))
    file = Paths.of_this_user().upgrades
    file.write_text(file.read_text().replace('"rate": 20', '"rate": "x"'))
    assert checked(TimedModel(NEW, 12.0)) == ""


def test_it_waits_for_silence_and_for_permission() -> None:
    checked(TimedModel(OLD, 20.0))
    reasons, told = ["on battery"], list[str]()
    model = TimedModel(NEW, 20.0)
    with session_of(model) as session:
        work = Guarding(session, lambda: reasons[-1], told.append, model.clock)
        assert (work.due_in(0.0) or 0.0) > 0.0
        assert (work.due_in(LONG_IDLE) or 0.0) < 0.0
        work.run(lambda: True)
        assert model.passes == 0
        assert (work.due_in(LONG_IDLE) or 0.0) > 0.0
        reasons.append("")
        work.run(lambda: False)
        assert work.due_in(LONG_IDLE) is not None, "it begins again"
        assert not told
        model.at, model.lead = 7, 4.0
        work.run(lambda: True)
        assert work.due_in(LONG_IDLE) is None
        assert "more than rounding" in told[0]


def test_a_model_elsewhere_is_not_guarded() -> None:
    model = TimedModel(OLD, 20.0)
    model.info = replace(model.info, host="box")
    with session_of(model) as session:
        assert Guarding(session, lambda: "", print).due_in(LONG_IDLE) is None


def test_doctor_tells_it_until_another_setup_is_used(specchat: Specchat) -> None:
    checked(TimedModel(OLD, 20.0))
    told = checked(TimedModel(NEW, 12.0))
    rows = specchat("doctor").stdout.splitlines()
    assert f"since a change  {told}" in rows
    checked(TimedModel(OLD, 20.0))
    assert "since a change" not in specchat("doctor").stdout
