"""Two models at once: which divisions of threads are worth measuring, and what is kept of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.drafting.overlap import Threads, measured_at_once, overlap_file, thread_choices
from app.learned.calibrations import ProcessorTimes
from app.paths import Paths
from backends.base import ModelInfo
from decoding.overlap.overlap_cost import AtOnce
from tests.fixtures.scripted import ScriptedModel

INFO = ScriptedModel(["a"]).info


def on(device: str, threads: int, gpu_layers: int | None = None) -> ModelInfo:
    return replace(INFO, device=device, threads=threads, gpu_layers=gpu_layers)


@pytest.mark.parametrize(
    ("cores", "expected"),
    [(1, ()), (2, ((1, 1),)), (4, ((2, 2), (3, 1))), (8, ((4, 4), (7, 1)))],
)
def test_on_one_processor_each_gets_some_of_its_cores(
    cores: int, expected: tuple[tuple[int, int], ...]
) -> None:
    info = on("CPU: any", cores)
    assert thread_choices(info, info, cores) == expected


def test_nobody_gets_more_threads_than_it_was_opened_with() -> None:
    assert thread_choices(on("CPU: any", 2), on("CPU: any", 1), 8) == ((2, 1),)


def test_a_device_of_its_own_leaves_nothing_to_divide() -> None:
    gpu, cpu = on("GPU", 4), on("CPU: any", 4)
    assert thread_choices(gpu, cpu, 1) == ((0, 0),)
    assert thread_choices(gpu, gpu, 1) == ((0, 0),)
    partly = on("GPU: 20 layers", 4, gpu_layers=20)
    assert thread_choices(partly, cpu, 1) == ()


CHOICES: tuple[Threads, ...] = ((1, 1), (2, 2))


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessorTimes, "load_until", lambda *_: 0.0)


@pytest.fixture
def taken() -> list[Threads]:
    return []


def kept(file: Path, taken: list[Threads]) -> dict[Threads, AtOnce]:
    def measure(threads: Threads) -> AtOnce:
        taken.append(threads)
        return AtOnce(1.0 + threads[0] / 10, 1.5)

    return measured_at_once(file, CHOICES, measure)


def test_what_was_measured_is_known_at_the_next_start(tmp_path: Path, taken: list[Threads]) -> None:
    found = kept(tmp_path / "kept.json", taken)
    assert found == {(1, 1): AtOnce(1.1, 1.5), (2, 2): AtOnce(1.2, 1.5)}
    assert kept(tmp_path / "kept.json", taken) == found
    assert taken == [*CHOICES]


def test_another_pair_has_another_file(tmp_path: Path) -> None:
    files = tmp_path / "target.gguf", tmp_path / "drafter.gguf"
    for file in files:
        file.write_bytes(file.name.encode())
    target, drafter = (replace(ScriptedModel(["a"]).info, path=file) for file in files)
    pairs = ((target, drafter), (drafter, target), (target, replace(drafter, threads=7)))
    assert len({overlap_file(*pair, Paths.of_this_user()) for pair in pairs}) == len(pairs)


@pytest.mark.parametrize(
    "damage", ["", "{}", '{"schema": 1, "factors": {"1+1": [0, 1]}}', '{"schema": 1, "factors": 3}']
)
def test_a_file_that_is_damaged_is_measured_again(
    tmp_path: Path, taken: list[Threads], damage: str
) -> None:
    found = kept(tmp_path / "kept.json", taken)
    (tmp_path / "kept.json").write_text(damage)
    assert kept(tmp_path / "kept.json", taken) == found
    assert kept(tmp_path / "kept.json", taken) == found
    assert len(taken) == 2 * len(CHOICES)


def test_what_was_measured_beside_other_programs_counts_for_nothing(
    tmp_path: Path, taken: list[Threads], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessorTimes, "load_until", lambda *_: 0.4)
    assert kept(tmp_path / "kept.json", taken) == kept(tmp_path / "kept.json", taken) == {}
    assert len(taken) == 2 * len(CHOICES)
