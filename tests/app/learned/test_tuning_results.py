"""What tuning measured so far: kept at once, by several processes, through damage."""

import dataclasses
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.learned import tuned_recipe
from app.learned.tuned_recipe import TuningResults
from app.paths import Paths
from backends.base import DiskFullError, ModelInfo, Rollback
from decoding.checks.agreement import Reply
from models.self_draft.recipe import Recipe
from models.tuning.recipe_search import Tried

REPLIES = [Reply((1, 2), (3, 4, 5)), Reply((6,), (7,))]
FOUND = {Recipe("q4_0"): Tried(0.5, 0.25), Recipe(None, (1,)): "it cannot skip layers"}


@pytest.fixture
def info(demo_file: Path) -> ModelInfo:
    return ModelInfo(
        path=demo_file, name="demo", architecture="llama", quantization="Q4_1", parameters=1,
        weight_bytes=1, bytes_read_per_token=1, n_vocab=100, n_layers=30, context_limit=512,
        rollback=Rollback.ANY, backend="llamacpp", engine="a build", device="CPU",
        threads=1,
    )  # fmt: skip


@pytest.fixture
def kept(info: ModelInfo, paths: Paths) -> TuningResults:
    results = TuningResults(info, paths)
    results.add_replies(REPLIES)
    for recipe, found in FOUND.items():
        results.add(recipe, found)
    return results


def test_the_next_run_knows_all(kept: TuningResults, info: ModelInfo, paths: Paths) -> None:
    again = TuningResults(info, paths)
    assert (again.tried, again.replies) == (FOUND, REPLIES)
    again.remove()
    assert TuningResults(info, paths).tried == {}
    assert kept.path == again.path


@pytest.mark.parametrize("change", [{"engine": "b"}, {"device": "GPU"}, {"threads": 2}])
@pytest.mark.usefixtures("kept")
def test_another_place_knows_nothing(
    change: dict[str, object], info: ModelInfo, paths: Paths
) -> None:
    assert TuningResults(dataclasses.replace(info, **change), paths).tried == {}


Damage = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: {"q4_0": None},
        lambda _: {"q4_0": {}},
        lambda _: {"skip=30": {"acceptance": 0.5, "draw_cost": 0.25}},
        lambda _: {"none such": {"acceptance": 0.5, "draw_cost": 0.25}},
        lambda found: {"q4_0": found | {"acceptance": 1.5}},
        lambda found: {"q4_0": found | {"draw_cost": "nan"}},
    ],
)
def test_a_result_of_no_use_is_left_out(
    damage: Damage, kept: TuningResults, info: ModelInfo, paths: Paths
) -> None:
    whole = json.loads(kept.path.read_text())
    whole["tried"] |= damage(whole["tried"].pop("q4_0"))
    kept.path.write_text(json.dumps(whole))
    again = TuningResults(info, paths)
    assert again.tried == {Recipe(None, (1,)): "it cannot skip layers"}
    assert again.replies == REPLIES


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00", b"", b"[]", b"[" * 5000, b'{"schema": 1', b'{"schema": 2, "tried": {}}',
        b'{"schema": 1, "tried": 5, "replies": 7}', b'{"schema": 1, "replies": [[[1], [100]]]}',
        b"\x00" * 20_000_000,
    ],
    ids=lambda content: repr(content[:20]),
)  # fmt: skip
def test_a_file_of_no_use_is_like_none(
    content: bytes, kept: TuningResults, info: ModelInfo, paths: Paths
) -> None:
    kept.path.write_bytes(content)
    again = TuningResults(info, paths)
    assert (again.tried, again.replies) == ({}, [])
    again.add(Recipe("q4_0"), Tried(0.5, 0.25))
    assert TuningResults(info, paths).tried == {Recipe("q4_0"): Tried(0.5, 0.25)}


def test_two_that_tune_at_once_lose_nothing(info: ModelInfo, paths: Paths) -> None:
    one, other = TuningResults(info, paths), TuningResults(info, paths)
    for results, (recipe, found) in zip((one, other), FOUND.items(), strict=True):
        results.add(recipe, found)
    assert TuningResults(info, paths).tried == FOUND


def test_a_full_disk_is_an_error_that_says_so(
    kept: TuningResults, info: ModelInfo, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tuned_recipe, "write_whole", full)
    with pytest.raises(DiskFullError, match="cannot be saved") as refused:
        kept.add(Recipe("q2_k"), Tried(0.1, 0.1))
    assert "repeat the command" in refused.value.remedy
    assert TuningResults(info, paths).tried == FOUND
