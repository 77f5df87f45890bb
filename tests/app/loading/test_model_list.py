"""Models on this machine and in the catalogue, with memory, speed and faults."""

import shutil
from pathlib import Path

import pytest

from app.loading.model_list import Speed, Speeds, list_models, offered
from app.paths import Paths
from models.metadata.memory_bill import Fit, facts_of
from models.stores.available_models import demo_path
from tests.fixtures.tiny.kinds import Tiny

NOTHING_KNOWN = Speeds(lambda _: None, lambda _: None)


@pytest.fixture
def folder() -> Path:
    folder = Paths.of_this_user().models
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_installed_models_come_before_downloads(folder: Path) -> None:
    for name in ("large", "small"):
        (folder / f"{name}.gguf").write_bytes(b"x" * (9 if name == "large" else 5))
    found = offered(folder, free=4 << 30)
    assert [model.name for model in found if model.is_installed] == ["demo", "large", "small"]
    by_name = {model.name: model for model in found}
    assert by_name["demo"].fit is Fit.FITS
    assert by_name["large"].fit is None
    assert by_name["large"].fault == "damaged or cut short"
    assert by_name["llama3.3-70b"].fit is Fit.TOO_BIG
    experts = by_name["qwen3-30b-a3b"]
    assert (experts.read_bytes or 0) < (experts.size_bytes or 0) / 5


def test_a_mixture_that_is_installed_is_rated_by_what_a_token_reads(
    folder: Path, tiny: Tiny
) -> None:
    shutil.copy(tiny("nemotron_h_moe"), folder / "mixture.gguf")
    mixture = next(model for model in offered(folder) if model.name == "mixture")
    assert mixture.read_bytes == facts_of(folder / "mixture.gguf").read_bytes
    assert 0 < (mixture.read_bytes or 0) < 0.9 * (mixture.size_bytes or 0)


@pytest.mark.parametrize("share", [0.2, 0.61, 0.9999])
def test_an_incomplete_file_is_told_with_its_sizes(folder: Path, share: float) -> None:
    demo = demo_path()
    assert demo is not None
    whole = demo.read_bytes()
    (folder / "mine.gguf").write_bytes(whole[: round(len(whole) * share)])
    mine = next(model for model in offered(folder) if model.name == "mine")
    assert mine.fault == f"incomplete: {round(98.36 * share)} of 98 MB"
    assert mine.memory_bytes is None


def test_a_model_that_ran_here_has_its_measured_speed(folder: Path) -> None:
    speeds = Speeds(lambda path: 114.2, lambda count: 1e10 / count)
    models = {model.name: model for model in list_models(folder, speeds, "demo").models}
    assert models["demo"].speed == Speed(114.2, is_measured=True)
    assert models["smollm2-1.7b"].speed == Speed(1e10 / 1.06e9, is_measured=False)
    assert all(model.speed is None for model in list_models(folder, NOTHING_KNOWN).models)


def test_the_model_in_use_leaves_its_memory_to_another(folder: Path) -> None:
    def fitting(loaded_bytes: int) -> int:
        found = list_models(folder, NOTHING_KNOWN, "demo", loaded_bytes)
        return sum(model.fit is not Fit.TOO_BIG for model in found.models)

    assert fitting(1 << 40) > fitting(0)
