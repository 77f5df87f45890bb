"""What two models take at once is measured once, and again if its file is of no use."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.drafting.overlap import OverlapMeasurements, Threads
from app.learned.calibrations import ProcessorTimes
from app.paths import Paths
from backends.base import ModelInfo
from decoding.overlap.overlap_cost import AtOnce
from tests.fixtures.scripted import ScriptedModel

CHOICES: tuple[Threads, ...] = ((1, 1), (2, 2))


@pytest.fixture
def infos(tmp_path: Path) -> tuple[ModelInfo, ModelInfo]:
    files = tmp_path / "target.gguf", tmp_path / "drafter.gguf"
    for file in files:
        file.write_bytes(file.name.encode())
    info = ScriptedModel(["a"]).info
    return replace(info, path=files[0]), replace(info, path=files[1])


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessorTimes, "load_until", lambda *_: 0.0)


@pytest.fixture
def taken() -> list[Threads]:
    return []


def paths_of(infos: tuple[ModelInfo, ModelInfo]) -> Paths:
    """Folders of the test alone."""
    return replace(Paths.of_this_user(), cache=infos[0].path.parent / "cache")


def kept(infos: tuple[ModelInfo, ModelInfo], taken: list[Threads]) -> dict[Threads, AtOnce]:
    def measure(threads: Threads) -> AtOnce:
        taken.append(threads)
        return AtOnce(1.0 + threads[0] / 10, 1.5)

    cache = OverlapMeasurements(paths_of(infos), lambda _: None)
    return cache.of(*infos, CHOICES, measure)


def test_what_was_measured_is_known_at_the_next_start(
    infos: tuple[ModelInfo, ModelInfo], taken: list[Threads]
) -> None:
    found = kept(infos, taken)
    assert found == {(1, 1): AtOnce(1.1, 1.5), (2, 2): AtOnce(1.2, 1.5)}
    assert kept(infos, taken) == found
    assert taken == [*CHOICES]


def test_another_pair_is_measured_for_itself(
    infos: tuple[ModelInfo, ModelInfo], taken: list[Threads]
) -> None:
    kept(infos, taken)
    kept((infos[1], infos[0]), taken)
    kept((infos[0], replace(infos[1], threads=7)), taken)
    assert len(taken) == 3 * len(CHOICES)


@pytest.mark.parametrize(
    "damage", ["", "{}", '{"schema": 1, "factors": {"1+1": [0, 1]}}', '{"schema": 1, "factors": 3}']
)
def test_a_file_that_is_damaged_is_measured_again(
    infos: tuple[ModelInfo, ModelInfo], taken: list[Threads], damage: str
) -> None:
    found = kept(infos, taken)
    (file,) = paths_of(infos).calibrations.glob("*-at-once-*.json")
    file.write_text(damage)
    assert kept(infos, taken) == found
    assert kept(infos, taken) == found
    assert len(taken) == 2 * len(CHOICES)


def test_what_was_measured_beside_other_programs_counts_for_nothing(
    infos: tuple[ModelInfo, ModelInfo], taken: list[Threads], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessorTimes, "load_until", lambda *_: 0.4)
    assert kept(infos, taken) == kept(infos, taken) == {}
    assert len(taken) == 2 * len(CHOICES)
