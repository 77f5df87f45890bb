"""What of measured costs is kept for the next start."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from threading import Barrier, Thread, current_thread
from typing import Any

import pytest

from app.learned.calibrations import Calibrations, ProcessorTimes
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import Context
from decoding.estimation.cost import CostModel, Measured
from models.bounded_files import read_object
from tests.fixtures.scripted import ScriptedModel

STEADY = Measured({1: 0.02, 4: 0.03, 16: 0.05})
UNSURE = Measured({1: 0.02, 4: 0.05, 16: 0.06}, 0.0, {4: 0.5, 16: 0.2})


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(["a"])


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says what the next measurements find."""

    def find(*found: Measured) -> None:
        left = iter(found)
        monkeypatch.setattr(
            "app.learned.calibrations.calibrate", lambda context, tokens, **_: next(left)
        )

    return find


def start(model: ScriptedModel, told: list[str] | None = None) -> CostModel:
    """The costs as a start of the program gets them."""
    notify = [].append if told is None else told.append
    context = TargetContext(model, model.open(64))
    return Calibrations(Paths.of_this_user(), notify).target(model, context)


def age(model: ScriptedModel, seconds: float) -> None:
    """Let the file be as old."""
    path = Calibrations(Paths.of_this_user(), [].append).file(model.info)
    then = time.time() - seconds
    os.utime(path, (then, then))


MINUTE, HOUR, DAY = 61.0, 3601.0, 24 * 3601.0


@pytest.mark.usefixtures("bare_home")
def test_a_steady_curve_is_measured_once(
    model: ScriptedModel, measuring: Callable[..., None]
) -> None:
    measuring(STEADY)
    for _ in range(3):
        costs = start(model)
        age(model, 100 * DAY)
        assert costs.points == STEADY.seconds
        assert costs.is_steady


@pytest.mark.usefixtures("bare_home")
def test_a_curve_measured_under_load_is_marked_until_a_quiet_one_confirms_it(
    model: ScriptedModel, measuring: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = iter([0.5, 0.25, 0.0])
    monkeypatch.setattr(ProcessorTimes, "load_until", lambda *_: next(loads))
    measuring(STEADY, STEADY, STEADY)
    context = TargetContext(model, model.open(64))
    calibrations = Calibrations(Paths.of_this_user(), [].append)
    spreads: list[float] = []
    for _ in range(4):
        spreads.append(calibrations.measured_target(model, context).spread)
        age(model, DAY)
    assert spreads == [0.5, 0.25, 0.0, 0.0]


@pytest.mark.usefixtures("bare_home")
def test_an_unsure_curve_is_kept_and_says_so(
    model: ScriptedModel, measuring: Callable[..., None]
) -> None:
    measuring(UNSURE)
    told: list[str] = []
    for _ in range(3):
        costs = start(model, told)
        assert costs.points == UNSURE.seconds
        assert not costs.is_steady
    assert len(told) == 1


@pytest.mark.usefixtures("bare_home")
def test_an_unsure_curve_is_improved_until_it_is_sure(
    model: ScriptedModel, measuring: Callable[..., None]
) -> None:
    measuring(
        UNSURE,
        Measured({1: 0.025, 4: 0.03, 16: 0.061}, 0.0, {4: 0.3, 16: 0.2}),
        Measured({1: 0.021, 4: 0.0305, 16: 0.09}, 0.0, {16: 0.3}),
    )
    assert start(model).points == {1: 0.02, 4: 0.05, 16: 0.06}
    age(model, MINUTE)
    costs = start(model)
    assert costs.points == {1: 0.02, 4: 0.03, 16: 0.06}
    assert not costs.is_steady
    age(model, HOUR)
    for _ in range(3):
        costs = start(model)
        age(model, DAY)
        assert costs.points == {1: 0.02, 4: 0.03, 16: 0.06}
        assert costs.is_steady


@pytest.mark.usefixtures("bare_home")
def test_what_stays_unsure_is_measured_more_and_more_seldom(
    model: ScriptedModel, measuring: Callable[..., None]
) -> None:
    measuring(*[replace(UNSURE, seconds={1: 0.02, 4: 0.05 / 2**n, 16: 0.06}) for n in range(5)])
    told: list[str] = []
    found = [(0.0, 1), (1.0, 1), (MINUTE, 2), (MINUTE, 2), (HOUR, 3), (HOUR, 3), (DAY, 4)]
    for seconds, times in found:
        if told:
            age(model, seconds)
        start(model, told)
        assert len(told) == times


@pytest.mark.usefixtures("bare_home")
def test_nobody_waits_in_a_conversation_for_an_unsure_curve_to_be_improved(
    model: ScriptedModel, measuring: Callable[..., None]
) -> None:
    measuring(UNSURE)
    start(model)
    age(model, DAY)
    opened = model.open(64)
    opened.forward([2, 3], 1)
    context = TargetContext(model, opened)
    costs = Calibrations(Paths.of_this_user(), [].append).target(model, context)
    assert costs.points == UNSURE.seconds


@pytest.mark.usefixtures("bare_home")
@pytest.mark.parametrize(
    "change",
    [
        {"schema": 3},
        {"changes": {"1": 0.01, "3": 0.01}},
        {"changes": {"16": 0.01}},
        {"changes": {"1": -0.01}},
        {"seconds": {"16": 0.05}},
        {"seconds": {"1": 0.0}},
        {"unsure": {"3": 0.1}},
        {"unsure": {"16": -0.1}},
        {"unsure": None},
        {"times": 0},
        {"times": "many"},
        {"switching": 2.0},
        {"held": {"2000": {"4": 0.1}}},
        {"held": {"0": {"1": 0.1}}},
        {"held": {"2000": {"1": -0.1}}},
    ],
)
def test_what_makes_no_sense_is_measured_again(
    model: ScriptedModel, measuring: Callable[..., None], change: dict[str, Any]
) -> None:
    measuring(UNSURE, STEADY)
    start(model)
    path = Calibrations(Paths.of_this_user(), [].append).file(model.info)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert start(model).points == STEADY.seconds


WRITER = """
import sys
from pathlib import Path
from models.bounded_files import change_object

path, name = Path(sys.argv[1]), sys.argv[2]
for n in range(40):
    change_object(path, lambda held: {**held, f"{name}{n}": n})
"""


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    writers = [Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("a", "b")]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert read_object(path) == {f"{name}{n}": n for name in ("a", "b") for n in range(40)}


@pytest.mark.usefixtures("bare_home")
def test_two_that_measure_at_once_keep_the_best_of_both(
    model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find nothing kept, and both write."""
    curves = {
        "first": Measured({1: 0.02, 4: 0.05, 16: 0.06}, 0.0, {4: 0.5, 16: 0.2}),
        "second": Measured({1: 0.03, 4: 0.03, 16: 0.08}, 0.0, {4: 0.5, 16: 0.2}),
    }
    together = Barrier(2)

    def calibrate(context: Context, tokens: Sequence[int], **_: float) -> Measured:
        together.wait()
        return curves[current_thread().name]

    monkeypatch.setattr("app.learned.calibrations.calibrate", calibrate)
    threads = [Thread(target=start, args=(model,), name=name) for name in curves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert start(model).points == {1: 0.02, 4: 0.03, 16: 0.06}


def test_a_flat_curve_of_before_is_measured_further_and_a_steep_one_is_not(
    bare_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not bare_home.exists()
    calibrations = Calibrations(Paths.of_this_user(), lambda _: None)
    model = ScriptedModel(["a"])
    opened = model.open(128)
    opened.max_logits = 63
    context = TargetContext(model, opened)
    before = [{1: 0.02, 16: 0.03}, {1: 0.02, 16: 0.08}]
    after = {1: 0.02, 16: 0.03, 32: 0.04, 63: 0.05}
    for seconds, kept in zip(before, (after, before[1]), strict=True):
        for found in (seconds, after):
            monkeypatch.setattr(
                "app.learned.calibrations.calibrate",
                lambda context, tokens, found=found, **_: Measured(found),
            )
            costs = calibrations.target(model, context)
        assert costs.points == kept
        narrow = TargetContext(model, model.open(128))
        assert calibrations.target(model, narrow).points == kept
        calibrations.file(model.info).unlink()


@pytest.mark.usefixtures("bare_home")
def test_what_a_chat_holds_is_measured_once_for_about_as_many_tokens(
    model: ScriptedModel, measuring: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring(STEADY, UNSURE)
    start(model)
    monkeypatch.setattr("app.learned.calibrations.LEAST_HELD", 20)
    monkeypatch.setattr(
        "app.learned.calibrations.calibrate_held",
        lambda context, *_, **__: {1: context.length / 100, 4: context.length / 50},
    )
    calibrations = Calibrations(Paths.of_this_user(), [].append)
    file, opened = calibrations.file(model.info), model.open(128)
    assert file.exists()
    context, measured = TargetContext(model, opened), list[int]()
    for length in (19, 20, 30, 39, 41, 60, 100):
        opened.truncate(0)
        for _ in range(length):
            opened.forward([0], 1)
        held = calibrations.measure_held(model, context, lambda: True)
        measured += [length] if held else []
    assert measured == [20, 41, 100]
    costs = start(model)
    costs.hold(100_000)
    assert costs.seconds(1) > 1.0, "kept for the next start"
    stored = json.loads(file.read_text())
    del stored["held"]  # as an earlier version wrote it
    file.write_text(json.dumps(stored))
    assert start(model).points == STEADY.seconds
    measuring(UNSURE)
    assert calibrations.measure_held(model, context, lambda: True)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"unsure": {"4": 0.5}}))
    age(model, DAY)
    start(model)
    assert json.loads(file.read_text())["held"], "measured again, the curve keeps what it knows"
