"""The models to choose from, and the speeds to expect of them."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.engine.status import Loaded
from app.loading.model_list import (
    ListedModel,
    Order,
    Reach,
    Speed,
    about,
    arranged,
    list_models,
    offered,
    recommended,
    suggested,
)
from app.paths import Paths
from app.tui.downloads import models_here
from models import catalogue
from models.catalogue import find
from models.metadata.memory_bill import Fit, facts_of
from models.reference import Reference
from models.stores.available_models import demo_path
from tests.fixtures.metrics import LIVE
from tests.fixtures.tiny.kinds import Tiny


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


@pytest.mark.parametrize(
    ("order", "names"),
    [
        (Order.CATALOGUE, "D b a c"),
        (Order.NAME, "D a b c"),
        (Order.SIZE, "D a c b"),
        (Order.SPEED, "D c b a"),
        (Order.USED, "D a b c"),
    ],
)
def test_starred_models_are_first_and_the_unknown_last(order: Order, names: str) -> None:
    models = [
        ListedModel(
            name, size, size, None, "", speed=Speed(rate, is_measured=True) if rate else None
        )
        for name, size, rate in (("b", None, 5), ("a", 1, None), ("c", 2, 9), ("D", 9, 1))
    ]
    found = arranged(models, order, {"D", "gone"}, {"a": 20.0, "b": 10.0})
    assert " ".join(model.name for model in found) == names
    assert [model.is_starred for model in found] == [True, False, False, False]


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


def test_a_model_that_ran_here_has_its_measured_speed_and_others_follow_from_it(
    folder: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("beside", "large"):
        shutil.copy(tiny("llama"), folder / f"{name}.gguf")
    demo = demo_path()
    assert demo is not None
    info = replace(LIVE.model, path=demo, bytes_read_per_token=1_000_000_000)
    loaded = Loaded(Reference("demo", demo), info, 512, (), "", (), 0.0, 40e9, 20.0)
    engine: Any = SimpleNamespace(paths=Paths.of_this_user(), status=SimpleNamespace(loaded=loaded))
    rates = {"beside": 7.0}
    monkeypatch.setattr("app.learned.speeds.rate_beside", lambda path, *_: rates.get(path.stem))
    monkeypatch.setattr("app.drafting.choose.memory_choice.expected_streaming_rate", lambda *_: 0.5)
    monkeypatch.setattr(
        "app.loading.model_list._fit",
        lambda path, *_: Fit.STREAMS if path.stem == "large" else Fit.FITS,
    )
    models = {model.name: model for model in models_here(engine).models}
    assert models["demo"].speed == Speed(20.0, is_measured=True)
    assert models["beside"].speed == Speed(7.0, is_measured=True)
    assert models["large"].speed == Speed(0.5, is_measured=False)
    assert models["smollm2-1.7b"].speed == Speed(20e9 / 1.06e9, is_measured=False)
    engine.status.loaded = None
    assert all(model.speed is None for model in models_here(engine).models)


def test_the_model_in_use_leaves_its_memory_to_another(folder: Path) -> None:
    def fitting(loaded_bytes: int) -> int:
        found = list_models(folder, loaded="demo", loaded_bytes=loaded_bytes)
        return sum(model.fit is not Fit.TOO_BIG for model in found.models)

    assert fitting(1 << 40) > fitting(0)


REACH = Reach(40e9, 0.5)


def model(name: str, size: float, read: float | None = None, fit: Fit = Fit.FITS) -> ListedModel:
    return ListedModel(name, round(size), round(read or size), fit, "")


def test_the_fraction_that_a_model_reached_holds_for_others() -> None:
    reach = Reach.measured(40e9, 10.0, 2_000_000_000)
    assert reach == REACH
    assert REACH.rate(1_000_000_000) == 20.0
    assert REACH.rate(None) is None


@pytest.mark.parametrize(("bandwidth", "rate"), [(None, 10.0), (40e9, None), (0.0, 10.0)])
def test_nothing_is_expected_without_a_measurement(
    bandwidth: float | None, rate: float | None
) -> None:
    assert Reach.measured(bandwidth, rate, 1000) is None


def test_a_model_read_from_the_cache_promises_no_more_than_the_memory() -> None:
    reach = Reach.measured(10e9, 200.0, 100_000_000)
    assert reach is not None
    assert reach.fraction == 1.0


@pytest.mark.parametrize(
    ("rate", "words", "narrow"),
    [
        (None, "", ""), (0.4, "under 1 tok/s", "<1 tok/s"), (1.2, "about 1 tok/s", "~1 tok/s"),
        (9.9, "about 10 tok/s", "~10 tok/s"), (21.6, "about 22 tok/s", "~22 tok/s"),
        (114.0, "about 110 tok/s", "~110 tok/s"), (1234.0, "about 1,200 tok/s", "~1,200 tok/s"),
    ],
)  # fmt: skip
def test_an_expected_rate_in_words(rate: float | None, words: str, narrow: str) -> None:
    assert (about(rate), about(rate, is_narrow=True)) == (words, narrow)


def test_the_largest_models_that_are_quick_enough() -> None:
    models = [
        model("qwen3-14b", 9.0e9), model("qwen3-4b", 2.5e9), model("qwen3-8b", 5.0e9),
        model("smollm2-1.7b", 1.0e9), model("smollm2-360m", 0.3e9), model("qwen3-1.7b", 1.5e9),
    ]  # fmt: skip
    names = [(one.model.name, round(one.rate)) for one in suggested(models, REACH)]
    assert names == [("qwen3-4b", 8), ("qwen3-1.7b", 13), ("smollm2-1.7b", 20)]


def test_one_that_is_large_and_quick_is_suggested_once() -> None:
    models = [model("qwen3-30b-a3b", 18e9, read=1.2e9), model("qwen3-4b", 1.6e9)]
    names = [one.model.name for one in suggested(models, REACH)]
    assert names == ["qwen3-30b-a3b", "qwen3-4b"]


def test_what_is_recommended_is_suggested_first_or_here() -> None:
    models = [model("qwen3-14b", 9.0e9), model("qwen3-4b", 2.5e9), model("qwen3-1.7b", 1.5e9)]
    best = recommended(models, REACH)
    assert best == suggested(models, REACH)[0]
    assert best is not None
    here = [
        replace(one, path=Path("qwen3-4b.gguf")) if one == best.model else one for one in models
    ]
    again = recommended(here, REACH)
    assert again is not None
    assert (again.model.name, again.model.is_installed) == ("qwen3-4b", True)
    assert suggested(here, REACH)[0].model.name == "qwen3-1.7b"
    assert recommended(models[:1], REACH) is None


def test_what_does_not_fit_or_needs_a_login_is_not_suggested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gated = replace(catalogue.entries()[0], name="gated", is_gated=True)
    monkeypatch.setattr(catalogue, "find", lambda name: gated if name == "gated" else find(name))
    models = [
        model("qwen3-4b", 1e9, fit=Fit.TIGHT), model("qwen3-8b", 1e9, fit=Fit.TOO_BIG),
        model("mine", 1e9), model("gated", 1e9),
    ]  # fmt: skip
    assert suggested(models, REACH) == []
    assert suggested([model("smollm2-360m", 1e9)], None) == []


def test_the_catalogue_has_suggestions_for_a_usual_machine(tmp_path: Path) -> None:
    names = [one.model.name for one in suggested(offered(tmp_path, 11_000_000_000), REACH)]
    assert len(names) == len(set(names)) == 3
