"""The store of self-drafters: built once, whole or not at all."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends.base import DraftUnavailableError, Model, ModelInfo, UsageError
from backends.files.gguf_header import read_header
from backends.llamacpp import requantize as requantizing
from backends.llamacpp.requantize import requantize
from models.self_draft import self_draft_store
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts

RECIPE = Recipe("q4_0")


@pytest.fixture
def store(tmp_path: Path) -> SelfDrafts:
    return SelfDrafts(tmp_path / "cache" / "self-drafts")


def build(store: SelfDrafts, info: ModelInfo, recipe: Recipe = RECIPE) -> tuple[Path, int]:
    """The file, and how often progress was told."""
    told: list[tuple[int, int]] = []
    path = store.get(info, recipe, lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    return path, len(told)


def drafters(store: SelfDrafts) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir() if path.name != "hashes.json")


def test_it_is_built_once_and_then_reused(store: SelfDrafts, demo: Model) -> None:
    assert store.made(demo.info, RECIPE) is None
    path, told = build(store, demo.info)
    built = path.stat()
    assert store.made(demo.info, RECIPE) == path
    assert store.made(demo.info, Recipe("q2_k")) is None
    again, told_again = build(store, demo.info)
    assert told > 100
    assert (again, told_again) == (path, 0)
    assert path.stat().st_mtime_ns == built.st_mtime_ns
    assert drafters(store) == [path.name]
    assert read_header(path).architecture == "llama"
    assert path.stat().st_size < demo.info.path.stat().st_size


@pytest.mark.slow
def test_other_content_and_other_recipes_get_other_files(
    store: SelfDrafts, demo: Model, demo_file: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "same.gguf"
    shutil.copyfile(demo_file, copy)
    changed = tmp_path / "changed.gguf"
    shutil.copyfile(demo_file, changed)
    with changed.open("r+b") as file:
        file.seek(-64, os.SEEK_END)
        file.write(b"\x01")
    paths = [
        build(store, dataclasses.replace(demo.info, path=path), recipe)[0]
        for path, recipe in [
            (demo_file, Recipe(None, (3,))),
            (copy, Recipe(None, (3,))),
            (changed, Recipe(None, (3,))),
            (demo_file, Recipe(None, (4,))),
        ]
    ]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 3


@pytest.mark.slow
def test_a_recipe_is_not_taken_for_the_beginning_of_another(store: SelfDrafts, demo: Model) -> None:
    longer, _ = build(store, demo.info, Recipe("q4_0", (3,)))
    assert store.made(demo.info, RECIPE) is None
    path, told = build(store, demo.info)
    assert (path != longer, told > 100) == (True, True)
    assert longer.exists()


@pytest.mark.slow
def test_all_that_was_made_from_a_model_is_found_without_reading_it(
    store: SelfDrafts, demo: Model, demo_file: Path, tmp_path: Path
) -> None:
    assert store.all_made(demo_file) == []
    first, _ = build(store, demo.info, Recipe(None, (3,)))
    second, _ = build(store, demo.info, Recipe(None, (3, 4)))
    assert store.all_made(demo_file) == sorted([first, second])
    with second.open("ab") as file:
        file.write(b"damaged")
    assert store.all_made(demo_file) == [first]
    copy = tmp_path / "never-hashed.gguf"
    shutil.copyfile(demo_file, copy)
    assert store.all_made(copy) == []


def test_too_little_memory_for_its_largest_tensor_is_told_before_the_work(
    store: SelfDrafts, demo: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_draft_store, "available_memory", lambda: 200_000_000)
    with pytest.raises(DraftUnavailableError, match="no drafter can be made") as refused:
        build(store, demo.info)
    assert "its largest tensor takes 0.2 GB of memory" in refused.value.why
    path, _ = build(store, demo.info, Recipe(None, (3,)))  # copied, and never held
    assert path.exists()


def test_fewer_experts_need_no_file(store: SelfDrafts, demo: Model) -> None:
    info = dataclasses.replace(demo.info, active_experts=4)
    assert build(store, info, Recipe(experts=1)) == (info.path, 0)
    assert store.made(info, Recipe(experts=1)) == info.path


def test_skipped_layers_are_gone(store: SelfDrafts, demo: Model) -> None:
    path, _ = build(store, demo.info, Recipe(None, (3, 4)))
    assert read_header(path).integer("block_count") == demo.info.n_layers - 2


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 1000, 40_000_000, -1])
def test_a_damaged_file_is_built_again(store: SelfDrafts, demo: Model, kept: int) -> None:
    path, _ = build(store, demo.info)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(kept % size)
    again, told = build(store, demo.info)
    assert (again, told > 100, path.stat().st_size) == (path, True, size)


def test_a_recipe_that_does_not_fit_leaves_no_trace(store: SelfDrafts, demo: Model) -> None:
    with pytest.raises(UsageError):
        build(store, demo.info, Recipe(None, (99,)))
    assert not store.folder.exists()


def test_stopping_midway_leaves_nothing_behind(store: SelfDrafts, demo: Model) -> None:
    def stop(done: int, _total: int) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.get(demo.info, RECIPE, stop)
    assert drafters(store) == []


@pytest.fixture
def endless_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """The processes that were started to make copies; none is done before it is killed."""
    endless = tmp_path / "endless.py"
    endless.write_text("import sys\nprint('progress 1 9', flush=True)\nsys.stdin.read()\n")
    monkeypatch.setattr(requantizing, "_WORKER", endless)
    started: list[subprocess.Popen[str]] = []

    class Watched(subprocess.Popen[str]):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # pyright: ignore
            started.append(self)

    monkeypatch.setattr(requantizing.subprocess, "Popen", Watched)
    return started


def test_closing_the_generator_ends_the_work(
    demo_file: Path, tmp_path: Path, endless_workers: list[subprocess.Popen[str]]
) -> None:
    work = requantize(demo_file, tmp_path / "half.gguf", "q4_0")
    next(work)
    work.close()  # pyright: ignore[reportAttributeAccessIssue]
    (worker,) = endless_workers
    assert worker.returncode not in (None, 0)


def test_a_worker_that_is_killed_is_a_reason_not_a_file(
    store: SelfDrafts, demo: Model, endless_workers: list[subprocess.Popen[str]]
) -> None:
    def kill(_done: int, _total: int) -> None:
        endless_workers[0].kill()

    with pytest.raises(DraftUnavailableError, match="no drafter could be made"):
        store.get(demo.info, RECIPE, kill)
    assert len(endless_workers) == 1
    assert drafters(store) == []


_BUILD = """
import sys
from pathlib import Path
from backends import llamacpp
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts

info = llamacpp.load(Path(sys.argv[1])).info

def tell(done, total):
    print(done, flush=True)
    sys.stdin.read()  # until it is killed: it never ends first

SelfDrafts(Path(sys.argv[2])).get(info, Recipe("q4_0"), tell)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.skipif(sys.platform == "win32", reason="it has no process 1")
def test_what_a_killed_process_left_is_never_taken_for_a_drafter(
    store: SelfDrafts, demo: Model, demo_file: Path
) -> None:
    arguments = [sys.executable, "-c", _BUILD, str(demo_file), str(store.folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe) as builder:
        assert builder.stdout is not None
        builder.stdout.readline()
        builder.send_signal(signal.SIGKILL)
    assert not list(store.folder.glob("*.gguf"))
    path, told = build(store, demo.info)
    assert told > 100
    assert path.is_file()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it has no process 1")
def test_what_a_killed_program_left_is_removed(store: SelfDrafts, demo: Model) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    store.folder.mkdir(parents=True)
    left, fresh, at_work = (
        store.folder / f".{name}.partial.{process}"
        for name, process in (("left", ended.pid), ("fresh", ended.pid), ("slow", 1))
    )
    long_ago = time.time() - 120
    for path in (left, fresh, at_work):
        path.touch()
    for path in (left, at_work):
        os.utime(path, (long_ago, long_ago))
    path, _ = build(store, demo.info)
    assert drafters(store) == sorted([path.name, fresh.name, at_work.name])


def test_a_folder_that_cannot_be_made_is_a_reason(demo: Model, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = SelfDrafts(tmp_path / "file" / "self-drafts")
    with pytest.raises(DraftUnavailableError, match="cannot be kept") as refused:
        build(store, demo.info)
    assert "SPECCHAT_HOME" in refused.value.remedy


def test_a_full_disk_is_called_one(
    store: SelfDrafts, demo: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> object:
        raise DraftUnavailableError("no drafter could be made from x", "iostream error")

    usage = shutil.disk_usage(demo.info.path)._replace(free=5_000_000)
    monkeypatch.setattr(requantizing, "requantize", fail)
    monkeypatch.setattr(self_draft_store.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DraftUnavailableError) as refused:
        build(store, demo.info)
    assert "the disk is full (5 MB free" in refused.value.why
    assert drafters(store) == []
