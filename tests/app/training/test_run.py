"""A run is kept on disk, goes on as it was begun, rests while someone is answered, and is held."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.paths import Paths
from app.training.plan import Method, Stage
from app.training.run import Order, Progress, Run, unfinished
from backends.base import UsageError
from tests.app.training.test_plan import FLAT, plan

ORDER = Order(method=Method.EAGLE3, minutes=10.0)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    return path


def run_of(target: Path, order: Order = ORDER) -> Run:
    return Run(Paths.of_this_user(), target, order)


def held(run: Run, *, anew: bool = False) -> None:
    with run.locked(anew=anew):
        pass


def begun(target: Path) -> Run:
    run = run_of(target)
    with run.locked():
        run.begin(plan(FLAT, 10))
    return run


def steps(count: int, said: list[int]) -> Iterator[Progress]:
    for number in range(count):
        said.append(number)
        yield Progress(Stage.TRAIN, number + 1, count)


def test_a_later_process_finds_the_plan_and_the_stage(target: Path) -> None:
    run = begun(target)
    run.end(Stage.GENERATE)
    again = run_of(target)
    assert again.plan == plan(FLAT, 10)
    assert again.stage is Stage.TRAIN
    with again.locked():
        assert again.plan


def test_other_options_do_not_go_on_with_it(target: Path) -> None:
    begun(target)
    with pytest.raises(UsageError, match="other options") as refused:
        held(run_of(target, replace(ORDER, seed=1, minutes=5.0)))
    assert "--minutes, --seed" in refused.value.why
    assert "--anew" in refused.value.remedy


def test_another_file_of_that_name_does_not_go_on_with_it_until_told_to(target: Path) -> None:
    before = begun(target)
    target.write_bytes(b"GGUF" + bytes(99) + b"x")
    changed = run_of(target)
    with pytest.raises(UsageError, match="has changed"):
        held(changed)
    with pytest.raises(UsageError, match="has changed"):
        list(before.followed(steps(3, []), bool))
    assert before.folder.exists()
    held(changed, anew=True)
    assert not before.folder.exists()
    held(changed)
    assert list(before.folder.parent.iterdir()) == [Paths.of_this_user().answering]


def test_one_process_at_a_time_works_on_it(target: Path) -> None:
    run = begun(target)
    with run.locked(), pytest.raises(UsageError, match="already"), run_of(target).locked():
        pass


def test_the_time_left_counts_the_stages_to_come(target: Path) -> None:
    run = begun(target)
    assert run.plan is not None
    first, *_, last = run.followed(steps(50, []), bool)
    assert first.seconds_left == pytest.approx(
        run.plan.seconds[Stage.TRAIN] * 49 / 50 + run.plan.seconds[Stage.TEST]
    )
    assert last.seconds_left == pytest.approx(run.plan.seconds[Stage.TEST])


def test_it_rests_while_someone_is_answered(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, mark, said = begun(target), Paths.of_this_user().answering, list[int]()

    def no_more(_seconds: float) -> None:
        os.utime(mark, (0.0, 0.0))

    monkeypatch.setattr("app.training.run.time.sleep", no_more)
    os.utime(mark)
    progress = run.followed(steps(3, said), bool)
    assert not next(progress).is_paused
    assert next(progress).is_paused
    assert said == [0]
    assert [one.is_paused for one in progress] == [False, False]


def test_a_stop_ends_the_rest(target: Path) -> None:
    run, mark = begun(target), Paths.of_this_user().answering
    os.utime(mark)
    stopped = list[bool]()
    progress = run.followed(steps(2, []), lambda: bool(stopped))
    next(progress)
    stopped.append(True)
    assert not next(progress).is_paused


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"schema": 1, "plan": {"tokens": 1}}'])
def test_what_is_damaged_begins_anew(target: Path, damage: bytes) -> None:
    run = begun(target)
    (run.folder / "state.json").write_bytes(damage)
    assert run_of(target).plan is None


def test_what_others_read_of_it(target: Path) -> None:
    run = begun(target)
    run.end(Stage.GENERATE)
    state = json.loads((run.folder / "state.json").read_text("utf-8"))
    assert state["target"] == str(target)
    assert state["progress"]["stage"] == "train"
    assert state["progress"]["is_paused"] is False
    [found] = unfinished(Paths.of_this_user())
    assert found.words == "train, 0 %"
    assert found.name == "model-eagle3"
    assert found.command == f"specchat models train {target} --method eagle3 --minutes 10.0"


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress(Stage.TEST, 1, 0), "test, 100 %"),
        (Progress(Stage.TEST, 1, 3), "test, 33 %"),
        (Progress(Stage.TRAIN, 1, 2, 20), "train, 50 %, 20 s left"),
        (Progress(Stage.TRAIN, 1, 2, is_paused=True), "train, waits for the answer"),
    ],
)
def test_progress_in_words(target: Path, progress: Progress, words: str) -> None:
    run = begun(target)
    list(run.followed(iter([progress]), bool))
    [found] = unfinished(Paths.of_this_user())
    assert replace(found, progress=progress).words == words


def test_what_is_unfinished_is_discarded_unless_a_process_works_on_it(target: Path) -> None:
    paths, run = Paths.of_this_user(), begun(target)
    [found] = unfinished(paths)
    assert not found.is_held
    with run.locked():
        assert found.is_held
        with pytest.raises(UsageError, match="is in training"):
            found.discard()
    found.discard()
    assert unfinished(paths) == []
    assert list(paths.training.iterdir()) == [paths.answering]
