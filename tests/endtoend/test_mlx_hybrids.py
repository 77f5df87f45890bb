"""Models of MLX with a running state are drafted for, and draft: replies are plain decoding's."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import Model
from tests.fixtures.hybrid_checks import HybridContract, check_session
from tests.fixtures.mlx_models import HYBRIDS

SLOWLY = [pytest.param(kind, marks=pytest.mark.slow) for kind in HYBRIDS if kind != "deltanet"]


@pytest.fixture(scope="module", params=["deltanet", *SLOWLY])
def folder(request: pytest.FixtureRequest, small_mlx: Callable[..., Path]) -> Path:
    return small_mlx(request.param)


@pytest.fixture(scope="module")
def hybrid(folder: Path) -> Iterator[Model]:
    with closing(mlx.load(folder)) as model:
        yield model


@pytest.fixture(scope="module")
def drafter_model(folder: Path, small_mlx: Callable[..., Path]) -> Iterator[Model]:
    """A model of the same kind that is right about half of the time."""
    kind, *_ = folder.name.split("-")
    with closing(mlx.load(small_mlx(kind, noise=0.03))) as model:
        yield model


class TestMlx(HybridContract):
    greedy, greedy_at_length = (1, 48), (2, 96)
    sampled, sampled_often = 25, 100

    @pytest.mark.usefixtures("drafting_pays")
    @pytest.mark.parametrize(
        "draft", ["itself", pytest.param("lookup,ngram", marks=pytest.mark.slow)]
    )
    def test_a_session_drafts_for_it_and_with_it(self, folder: Path, draft: str) -> None:
        check_session(folder, str(folder) if draft == "itself" else draft)
