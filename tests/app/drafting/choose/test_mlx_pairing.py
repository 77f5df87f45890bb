"""Pairs of models that different engines run: each is known by what its own engine takes."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from app.drafting.choose.drafter_info import CostSource, DrafterInfo, Kind
from app.engine.session_opening import open_session
from app.engine.session_ranking import rank, rank_for
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import Context
from decoding.estimation.cost import Measured
from scripts.models.make_mlx_folder import make_folder
from tests.fixtures.costs import measured_as

pytestmark = pytest.mark.usefixtures("llamacpp", "costs_by_size")


@pytest.fixture
def costs_by_size(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Costs that are given, not measured: the targets here take a hundred times as much."""

    def calibrate(context: Context, tokens: Sequence[int], **_: float) -> Measured:
        return Measured(
            {1: 0.02, 16: 0.022} if context.kv_bytes_per_token > 600 else {1: 0.0002, 16: 0.0004}
        )

    yield from measured_as(calibrate, home, monkeypatch)


@pytest.fixture
def folder() -> Path:
    """Where this test's user keeps models: what lies here is listed."""
    folder = Paths.of_this_user().models
    folder.mkdir(parents=True)
    return folder


def once_opened(options: SessionOptions) -> Sequence[DrafterInfo]:
    """Drafters of a model, as the app shows them once its drafter was measured."""
    session = open_session(options, Paths.of_this_user(), lambda _: None)
    with closing(session):
        return rank_for(session).drafters


def ranked(options: SessionOptions) -> Sequence[DrafterInfo]:
    return rank(options, Paths.of_this_user(), lambda _: None).drafters


def cost_of(drafter: Path, pairs: Sequence[DrafterInfo]) -> tuple[CostSource | None, float]:
    (pair,) = [one for one in pairs if one.path == drafter]
    assert pair.draw_cost is not None
    return pair.cost_source, pair.draw_cost


def test_a_drafters_cost_is_that_of_its_own_engine(
    folder: Path, small_mlx: Callable[..., Path], tiny_llama: Callable[..., Path]
) -> None:
    for_mlx = shutil.copytree(small_mlx("plain"), folder / "small-mlx")
    file = Path(shutil.copyfile(tiny_llama(form="gpt2"), folder / "file.gguf"))
    large_folder = small_mlx("plain", num_hidden_layers=4)
    for target, drafter, backend in (
        (large_folder, file, "auto"),
        (large_folder, file, "mlx"),
        (tiny_llama(form="gpt2", layers=20), for_mlx, "auto"),
    ):
        options = SessionOptions(str(target), str(drafter), backend, threads=1)
        expected = (CostSource.MEASURED, pytest.approx(0.01))
        assert cost_of(drafter, once_opened(options)) == expected
        assert cost_of(drafter, ranked(options)) == expected


def test_a_vocabulary_is_the_same_through_both_engines(
    folder: Path, tiny_llama: Callable[..., Path], tmp_path: Path
) -> None:
    file, for_mlx = folder / "file.gguf", folder / "small-mlx"
    shutil.copyfile(tiny_llama(form="gpt2"), file)
    make_folder(file, for_mlx)
    large = tiny_llama(form="gpt2", layers=20)
    make_folder(large, tmp_path / "large")
    for target, drafter in ((large, for_mlx), (tmp_path / "large", file)):
        pairs = ranked(SessionOptions(str(target), threads=1))
        (pair,) = [one for one in pairs if one.path == drafter]
        assert pair.kind is Kind.SAME_VOCABULARY


def test_what_one_engine_takes_is_not_taken_for_another(
    folder: Path, tiny_llama: Callable[..., Path]
) -> None:
    drafter = Path(shutil.copyfile(tiny_llama(form="gpt2"), folder / "file.gguf"))
    target = str(tiny_llama(form="gpt2", layers=20))
    options = SessionOptions(target, str(drafter), "llamacpp", threads=1)
    assert cost_of(drafter, once_opened(options))[0] is CostSource.MEASURED
    options = SessionOptions(target, backend="mlx", threads=1)
    assert cost_of(drafter, ranked(options))[0] is CostSource.SIZE
