"""Locking a model's weights, letting go under pressure, and files that change meanwhile."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from backends.base import ModelError
from backends.base.model import stopping_passes
from backends.streaming import memory_pages, streamed_weights
from backends.streaming.mapped_file import MappedFile
from backends.streaming.streamed_weights import LockedWeights
from backends.streaming.weight_plan import LockPlan, lock_plan, weight_layout

MB = 1 << 20


@pytest.fixture
def file(demo_file: Path) -> Iterator[MappedFile]:
    with ExitStack() as closing:
        yield MappedFile(demo_file, closing)


@pytest.fixture
def plan(demo_file: Path) -> LockPlan:
    return lock_plan(weight_layout(demo_file), 8 * MB)


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Locks of a system that allows any."""
    held: list[tuple[int, int]] = []
    monkeypatch.setattr(memory_pages, "lock", lambda address, size: held.append((address, size)))
    monkeypatch.setattr(memory_pages, "unlock", lambda address, size: held.remove((address, size)))
    return held


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch, locks: list[tuple[int, int]]) -> list[int]:
    """Free memory beside the locks, in its only item."""
    room = [1000 * MB]
    monkeypatch.setattr(
        streamed_weights, "available_memory", lambda: room[0] - sum(size for _, size in locks)
    )
    monkeypatch.setattr(streamed_weights, "memory_limit", lambda: 1 << 40)
    monkeypatch.setattr(streamed_weights, "_SECONDS_BETWEEN_LOOKS", 0)
    return room


def locked_kilobytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmLck:"))


@pytest.mark.skipif(sys.platform != "linux", reason="the system's own count is Linux's")
def test_the_system_counts_what_is_locked(file: MappedFile, plan: LockPlan):
    before = locked_kilobytes()
    weights = LockedWeights([file], plan)
    if weights.refusal:
        pytest.skip(weights.refusal)
    assert weights.locked_bytes >= plan.locked_bytes
    assert 0 < 1024 * (locked_kilobytes() - before) <= weights.locked_bytes
    weights.release()
    weights.release()
    assert locked_kilobytes() == before
    assert weights.locked_bytes == 0


def test_a_refused_lock_is_told_and_the_rest_goes_on(
    file: MappedFile, plan: LockPlan, monkeypatch: pytest.MonkeyPatch
):
    taken: list[int] = []

    def lock(address: int, size: int) -> None:
        if len(taken) == 3:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        taken.append(size)

    monkeypatch.setattr(memory_pages, "lock", lock)
    monkeypatch.setattr(memory_pages, "unlock", lambda _address, size: taken.remove(size))
    weights = LockedWeights([file], plan)
    assert weights.locked_bytes == sum(taken)
    assert "locked memory" in weights.refusal
    weights.release()
    assert not taken


def test_nothing_is_locked_that_is_needed_from_moment_to_moment(
    file: MappedFile, plan: LockPlan, free: list[int], locks: list[tuple[int, int]]
):
    free[0] = streamed_weights._LEAST_FREE + 4 * MB
    weights = LockedWeights([file], plan)
    assert 0 < weights.locked_bytes <= 4 * MB
    assert weights.refusal == "no more memory is free"


def test_locking_can_be_stopped(file: MappedFile, plan: LockPlan, locks: list[tuple[int, int]]):
    with stopping_passes(lambda: len(locks) == 2):
        LockedWeights([file], plan)
    assert len(locks) == 2


def test_locks_are_let_go_when_others_need_memory_the_least_important_first(
    file: MappedFile, plan: LockPlan, free: list[int], locks: list[tuple[int, int]]
):
    weights = LockedWeights([file], plan)
    first, held = locks[0], weights.locked_bytes
    assert weights.relieve() == 0
    free[0] = streamed_weights._RESERVE + held - MB
    let_go = weights.relieve()
    assert MB <= let_go < held
    assert first in locks
    assert weights.relieve() == 0
    free[0] = 0
    assert weights.relieve() == held - let_go
    assert not locks


def test_what_was_let_go_is_locked_again_once_memory_has_been_free_for_a_while(
    file: MappedFile, plan: LockPlan, free: list[int], locks: list[tuple[int, int]]
):
    now = [0.0]
    weights = LockedWeights([file], plan, lambda: now[0])
    held = weights.locked_bytes
    free[0] = streamed_weights._RESERVE + held - 3 * MB
    let_go = weights.relieve()
    assert let_go >= 3 * MB
    free[0] = 1000 * MB
    now[0] = streamed_weights._SECONDS_OF_CALM - 0.1
    weights.retake()
    assert (weights.relieve(), weights.locked_bytes) == (0, held - let_go)
    assert weights.has_let_go
    now[0] += 0.2
    weights.retake()
    assert (weights.relieve(), weights.locked_bytes) == (0, held)
    assert not weights.has_let_go
    free[0] = 0
    now[0] += 0.1
    weights.relieve()
    free[0] = 2 * streamed_weights._RESERVE + MB  # enough for now, and none to spare
    now[0] += 2 * streamed_weights._SECONDS_OF_CALM
    weights.retake()
    assert weights.locked_bytes <= MB
    assert weights.locked_bytes == sum(size for _, size in locks)


def test_locks_that_the_system_refuses_are_not_tried_again(
    file: MappedFile, plan: LockPlan, free: list[int], monkeypatch: pytest.MonkeyPatch
):
    tried: list[int] = []

    def refuse(address: int, _size: int) -> None:
        tried.append(address)
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(memory_pages, "lock", refuse)
    now = [0.0]
    weights = LockedWeights([file], plan, lambda: now[0])
    now[0] = 10 * streamed_weights._SECONDS_OF_CALM
    weights.retake()
    assert len(tried) == 1


def test_another_plan_changes_only_what_differs(
    file: MappedFile, demo_file: Path, free: list[int], locks: list[tuple[int, int]]
):
    layout = weight_layout(demo_file)
    weights = LockedWeights([file], lock_plan(layout, 8 * MB))
    first = list(locks)
    weights.hold(lock_plan(layout, 16 * MB))
    assert weights.locked_bytes > 15 * MB
    assert set(first) & set(locks)
    weights.hold(lock_plan(layout, 8 * MB))
    assert sorted(locks) == sorted(first)
    weights.hold(lock_plan(layout, 0))
    assert (locks, weights.refusal) == ([], "")


def test_a_file_that_was_cut_short_is_refused_before_it_ends_the_process(tmp_path: Path):
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(100_000))
    with ExitStack() as closing:
        mapped = MappedFile(path, closing)
        assert mapped.fault() is None
        os.truncate(path, 50_000)
        fault = mapped.fault()
        assert fault is not None
        assert "was changed" in fault.why


def test_a_file_replaced_by_another_stays_usable(tmp_path: Path):
    path, other = tmp_path / "model.gguf", tmp_path / "other.gguf"
    path.write_bytes(bytes(100_000))
    other.write_bytes(bytes(10))
    with ExitStack() as closing:
        mapped = MappedFile(path, closing)
        other.replace(path)
        assert mapped.fault() is None


@pytest.mark.parametrize("content", [None, b""])
def test_a_file_that_cannot_be_mapped(tmp_path: Path, content: bytes | None):
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with ExitStack() as closing, pytest.raises(ModelError, match="cannot read"):
        MappedFile(path, closing)
