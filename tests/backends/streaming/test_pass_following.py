"""Following a pass: where it is, what is dropped behind it and read ahead of it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Queue

import pytest

from backends.streaming import mapped_file, pass_following
from backends.streaming.mapped_file import MappedFile
from backends.streaming.pass_following import DropBehind, ExpertReader, PassPosition, Readahead
from backends.streaming.weight_plan import Extent, LockPlan, Role, lock_plan, weight_layout

LAYERS = 30
PATIENCE = 120


@pytest.fixture
def file(demo_file: Path) -> Iterator[MappedFile]:
    with ExitStack() as closing:
        yield MappedFile(demo_file, closing)


@pytest.fixture
def plan(demo_file: Path) -> LockPlan:
    return lock_plan(weight_layout(demo_file), 40_000_000)


def layers_reached(position: PassPosition, operations: int) -> list[int]:
    position.begin()
    return [position.layer for _ in range(operations) if position.advance()]


def test_a_first_pass_tells_how_many_operations_the_next_has():
    position = PassPosition(4)
    assert layers_reached(position, 10) == []
    position.end()
    assert layers_reached(position, 10) == [1, 2, 3, 4]
    position.begin()
    assert [position.advance() for _ in range(5)] == [False, False, True, False, True]


def test_a_pass_with_more_or_fewer_operations_stays_within_the_layers():
    position = PassPosition(3)
    layers_reached(position, 9)
    position.end()
    assert layers_reached(position, 100) == [1, 2, 3]
    assert layers_reached(position, 4) == [1]


def test_every_layer_is_dropped_once_and_none_that_may_be_in_use(
    file: MappedFile, plan: LockPlan, monkeypatch: pytest.MonkeyPatch
):
    dropped: list[Extent] = []
    of_layer = {one.extent: one.layer for one in plan.streamed}
    reached = 0

    def note(_self: object, extent: Extent) -> None:
        dropped.append(extent)
        early.extend([extent] if (of_layer[extent] or 0) >= reached - 1 else [])

    monkeypatch.setattr(mapped_file, "_mappings", lambda _file: [])
    monkeypatch.setattr(pass_following.CacheDropper, "drop", note)
    early: list[Extent] = []
    drop = DropBehind([file], plan, LAYERS)
    drop.begin()
    for reached in range(1, LAYERS + 1):
        drop.reach(reached)
    drop.wait()
    assert early == []
    drop.end()
    drop.begin()
    drop.end()
    drop.close()
    assert dropped == 2 * [one.extent for one in plan.streamed]


def pieces_read(monkeypatch: pytest.MonkeyPatch) -> "Queue[tuple[int, int]]":
    read: Queue[tuple[int, int]] = Queue()
    monkeypatch.setattr(
        mapped_file, "read_ahead", lambda _file, offset, size: read.put((offset, size))
    )
    return read


def taken(read: "Queue[tuple[int, int]]", size: int) -> int:
    """Bytes read once at least so many are."""
    total = 0
    while total < size:
        total += read.get(timeout=PATIENCE)[1]
    return total


def test_reading_ahead_stays_within_its_window_and_reaches_the_end(
    file: MappedFile, plan: LockPlan, monkeypatch: pytest.MonkeyPatch
):
    read = pieces_read(monkeypatch)
    window = 4 << 20
    reader = Readahead([file], plan, LAYERS, 2 * window)
    whole = sum(one.extent.size for one in plan.streamed)
    done = taken(read, window)
    assert window <= done <= window + pass_following._PIECE
    for layer in range(1, LAYERS + 1):
        reader.reach(layer)
        passed = sum(one.extent.size for one in plan.streamed if (one.layer or 0) < layer)
        done += taken(read, min(passed + window, whole) - done)
        assert done <= passed + window + pass_following._PIECE
    assert done == whole
    reader.begin()
    assert taken(read, window) >= window
    reader.close()
    reader.close()
    assert read.empty()


def test_experts_are_not_read_ahead(
    tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    """Which of them a pass reads is not known before."""
    path = tiny_llama(layers=3, experts=(8, 2))
    plan = lock_plan(weight_layout(path), 0)
    experts = [one.extent for one in plan.streamed if one.role == Role.EXPERTS]
    read = pieces_read(monkeypatch)
    with ExitStack() as closing:
        reader = Readahead([MappedFile(path, closing)], plan, 3, 1 << 30)
        pieces = list[tuple[int, int]]()
        while sum(size for _, size in pieces) < plan.shared_bytes:
            pieces.append(read.get(timeout=PATIENCE))
        reader.close()
    assert read.empty()
    assert len(experts) == 9
    assert not any(one.offset <= offset < one.end for offset, _ in pieces for one in experts)


def test_layers_that_were_passed_are_not_read_any_more(
    file: MappedFile, plan: LockPlan, monkeypatch: pytest.MonkeyPatch
):
    read = pieces_read(monkeypatch)
    reader = Readahead([file], plan, LAYERS, 2 << 20)
    taken(read, 1 << 20)
    reader.reach(20)
    offset, _ = read.get(timeout=PATIENCE)
    layer = next(one.layer for one in plan.streamed if one.extent.offset <= offset < one.extent.end)
    assert layer is not None
    assert layer >= 20
    reader.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux drops from the cache")
def test_what_is_dropped_leaves_the_memory_of_every_mapping(demo_file: Path, tmp_path: Path):
    path = tmp_path / "model"
    path.write_bytes(bytes(8 << 20))
    with ExitStack() as closing:
        first, second = MappedFile(path, closing), MappedFile(path, closing)
        dropper = mapped_file.CacheDropper(first)
        assert {one.address for one in dropper._mapped} == {first.address, second.address}
        dropper.drop(Extent(0, 100, 4 << 20))
        dropper.drop(Extent(0, 100, 200))  # no whole page


COUNT = 8


@pytest.mark.parametrize(("room", "expected"), [(1 << 20, 6), (8, 4), (1, 0)])
def test_just_the_chosen_are_read_down_matrices_last_as_far_as_there_is_room(
    tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, room: int, expected: int
) -> None:
    """room: for so many experts' matrices; half of it is used."""
    path = tiny_llama(layers=3, experts=(COUNT, 2))
    layout = weight_layout(path)
    tensors = {one.name: one.extent for one in layout.tensors if one.role == Role.EXPERTS}
    size = tensors["blk.1.ffn_up_exps.weight"].size // COUNT
    read: list[tuple[int, int]] = []
    monkeypatch.setattr(
        mapped_file, "read_ahead", lambda _file, offset, size: read.append((offset, size))
    )
    with ExitStack() as closing:
        files = [MappedFile(path, closing)]
        reader = ExpertReader(files, lock_plan(layout, 0), layout.n_experts, room * size)
        reader.choose(1, {6, 3})
    parts = ("gate", "up", "down")
    starts = [tensors[f"blk.1.ffn_{part}_exps.weight"].offset for part in parts]
    wanted = [(start + expert * size, size) for start in starts for expert in (3, 6)]
    assert read == wanted[:expected]


def test_experts_that_are_held_are_not_read(
    tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_llama(layers=3, experts=(COUNT, 2))
    layout = weight_layout(path)
    monkeypatch.setattr(mapped_file, "read_ahead", lambda *_: pytest.fail("was read"))
    with ExitStack() as closing:
        plan = lock_plan(layout, 1 << 40)
        ExpertReader([MappedFile(path, closing)], plan, COUNT, 1 << 30).choose(1, {3})
