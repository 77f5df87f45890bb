"""Models of MLX with a running state are drafted for, and draft: replies are plain decoding's."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import Context, Model
from tests.fixtures.hybrid_checks import (
    check_answers_again,
    check_costs,
    check_greedy_replies,
    check_law,
    check_oracle,
    check_session,
)
from tests.fixtures.mlx_models import HYBRIDS

SLOWLY = [pytest.param(kind, marks=pytest.mark.slow) for kind in HYBRIDS if kind != "deltanet"]


@pytest.fixture(scope="module", params=["deltanet", *SLOWLY])
def folder(request: pytest.FixtureRequest, small_mlx: Callable[..., Path]) -> Path:
    return small_mlx(request.param)


@pytest.fixture(scope="module")
def hybrid(folder: Path) -> Iterator[Model]:
    with closing(mlx.load(folder)) as model:
        yield model


@pytest.fixture
def context(hybrid: Model) -> Iterator[Context]:
    with closing(hybrid.open(512)) as context:
        yield context


@pytest.fixture(scope="module")
def drafter_model(folder: Path, small_mlx: Callable[..., Path]) -> Iterator[Model]:
    """A model of the same kind that is right about half of the time."""
    kind, *_ = folder.name.split("-")
    with closing(mlx.load(small_mlx(kind, noise=0.03))) as model:
        yield model


@pytest.mark.parametrize(
    ("count", "length"), [(1, 48), pytest.param(4, 96, marks=pytest.mark.slow)]
)
def test_greedy_replies_are_plain_ones_with_every_drafter(
    hybrid: Model, context: Context, drafter_model: Model, count: int, length: int
) -> None:
    check_greedy_replies(hybrid, context, drafter_model, count, length)


def test_a_drafter_that_knows_the_answer_is_accepted_whole(context: Context) -> None:
    check_oracle(context)


@pytest.mark.parametrize("count", [25, pytest.param(100, marks=pytest.mark.slow)])
def test_sampled_replies_follow_the_models_own_law(
    hybrid: Model, context: Context, drafter_model: Model, count: int
) -> None:
    check_law(hybrid, context, drafter_model, count)


def test_another_answer_and_another_question_compute_little_again(context: Context) -> None:
    check_answers_again(context)


def test_costs_of_passes_are_measured_up_to_the_longest_draft(context: Context) -> None:
    check_costs(context)


@pytest.mark.usefixtures("drafting_pays")
@pytest.mark.parametrize("draft", ["itself", pytest.param("lookup,ngram", marks=pytest.mark.slow)])
def test_a_session_drafts_for_it_and_with_it(folder: Path, draft: str) -> None:
    check_session(folder, str(folder) if draft == "itself" else draft)
