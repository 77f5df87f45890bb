"""What tuning measured so far: kept line by line, by several processes, through damage."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.learned import tuned_recipe as tuning_results
from app.learned.tuned_recipe import TuningResults, append_line
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
    results = opened(info, paths, [])
    results.add_replies(REPLIES)
    for recipe, found in FOUND.items():
        results.add(recipe, found)
    return results


def opened(info: ModelInfo, paths: Paths, said: list[str]) -> TuningResults:
    return TuningResults(info, paths, said.append)


def test_the_next_run_knows_all(kept: TuningResults, info: ModelInfo, paths: Paths) -> None:
    said: list[str] = []
    again = opened(info, paths, said)
    assert (again.tried, again.replies, said) == (FOUND, REPLIES, [])
    again.remove()
    assert opened(info, paths, said).tried == {}
    assert kept.path == again.path


@pytest.mark.parametrize("change", [{"engine": "b"}, {"device": "GPU"}, {"threads": 2}])
@pytest.mark.usefixtures("kept")
def test_another_place_knows_nothing(
    change: dict[str, object], info: ModelInfo, paths: Paths
) -> None:
    assert opened(dataclasses.replace(info, **change), paths, []).tried == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[: len(line) // 2],
        lambda line: "[" * 5000,
        lambda line: "[]",
        lambda line: json.dumps(json.loads(line) | {"schema": 2}),
        lambda line: json.dumps(json.loads(line) | {"key": "another model"}),
        lambda line: json.dumps(json.loads(line) | {"recipe": "skip=30"}),
        lambda line: json.dumps(json.loads(line) | {"recipe": None}),
        lambda line: json.dumps(json.loads(line) | {"acceptance": 1.5}),
        lambda line: json.dumps(json.loads(line) | {"draw_cost": "nan"}),
        lambda line: json.dumps(json.loads(line) | {"replies": [[[1], [100]]]}),
    ],
)
def test_a_line_of_no_use_is_set_aside_and_said_once(
    damage: Callable[[str], str], kept: TuningResults, info: ModelInfo, paths: Paths
) -> None:
    replies, measured, failed = kept.path.read_text().splitlines()
    kept.path.write_text("\n".join([replies, damage(measured), failed]) + "\n")
    said: list[str] = []
    for _ in range(2):
        again = opened(info, paths, said)
        assert again.tried == {Recipe(None, (1,)): "it cannot skip layers"}
        assert again.replies == REPLIES
    assert len(said) == 1
    assert "repeated" in said[0]
    assert kept.path.with_suffix(".unusable").exists()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b""])
def test_a_file_of_no_use_is_like_none(
    content: bytes, kept: TuningResults, info: ModelInfo, paths: Paths
) -> None:
    kept.path.write_bytes(content)
    said: list[str] = []
    assert opened(info, paths, said).tried == opened(info, paths, said).tried == {}
    assert len(said) == bool(content)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xfe\x00",
        b"{\n" * 10_000_000,
        b"[" * 20_000_000,
        b"\x00" * 20_000_000,
        b'{"schema": 1',
    ],
    ids=["bytes", "lines", "brackets", "zeros", "half a line"],
)
def test_garbage_after_good_lines_costs_none_of_them(
    garbage: bytes, kept: TuningResults, info: ModelInfo, paths: Paths
) -> None:
    with kept.path.open("ab") as file:
        file.write(garbage)
    said: list[str] = []
    for _ in range(2):
        again = opened(info, paths, said)
        assert (again.tried, again.replies) == (FOUND, REPLIES)
    assert len(said) == 1
    assert kept.path.stat().st_size < 10_000


_ADD = """
import sys
from pathlib import Path
from app.learned.tuned_recipe import append_line
for number in range(300):
    append_line(Path(sys.argv[1]), f"{sys.argv[2]} {number} {'x' * 200}\\n".encode())
"""


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", _ADD, str(path), name]) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    lines = path.read_text().splitlines()
    wanted = {f"{name} {number} {'x' * 200}" for name in "ab" for number in range(300)}
    assert len(lines) == 600
    assert set(lines) == wanted


def test_a_full_disk_is_an_error_that_says_so(
    kept: TuningResults, info: ModelInfo, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(tuning_results.os, "write", full)
        with pytest.raises(DiskFullError, match="cannot be saved") as refused:
            kept.add(Recipe("q2_k"), Tried(0.1, 0.1))
    assert "repeat the command" in refused.value.remedy
    assert opened(info, paths, []).tried == FOUND


def test_a_line_that_was_cut_short_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning_results.os, "write", lambda descriptor, data: len(data) - 1)
    with pytest.raises(OSError, match="No space"):
        append_line(tmp_path / "results.jsonl", b"a line\n")
