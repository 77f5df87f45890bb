"""Lengths that an MLX context with a running state comes back to."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import Context
from backends.mlx import running_state as recorded_mixers
from backends.mlx.model import MlxModel
from backends.mlx.running_state import MOST
from tests.fixtures.checkpoint_checks import (
    check_after_rollback,
    check_brief,
    check_last_few,
    check_what_follows,
    check_without_memory,
)
from tests.fixtures.mlx_models import HYBRIDS


@pytest.fixture(params=HYBRIDS)
def model(request: pytest.FixtureRequest, small_mlx: Callable[..., Path]) -> Iterator[MlxModel]:
    with closing(mlx.load(small_mlx(request.param))) as loaded:
        yield loaded


@pytest.fixture
def context(model: MlxModel) -> Iterator[Context]:
    with closing(model.open(512)) as context:
        yield context


def test_what_follows_a_checkpoint_has_the_bits_of_the_first_time(context: Context) -> None:
    check_what_follows(context)


@pytest.mark.parametrize("reruns", [True, False])
def test_a_checkpoint_after_a_rollback_is_of_the_text_that_is_left(
    model: MlxModel, reruns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not reruns:
        monkeypatch.setattr(recorded_mixers, "is_mixer", lambda module: False)
    with closing(model.open(512)) as context:
        check_after_rollback(context)


def test_a_brief_checkpoint_takes_the_place_of_the_brief_one_before(context: Context) -> None:
    check_brief(context)


def test_the_last_few_checkpoints_stay(context: Context) -> None:
    check_last_few(context, MOST)


def test_without_memory_for_a_checkpoint_only_the_beginning_is_left(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.mlx.context._CHECKPOINTS_SHARE", 1 << 40)
    with closing(model.open(64)) as context:
        check_without_memory(context)
