"""Reading the experts that a layer chose."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from backends.streaming import pass_following as expert_reader
from backends.streaming.mapped_file import MappedFile
from backends.streaming.pass_following import ExpertReader
from backends.streaming.weight_plan import Role, lock_plan, weight_layout

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
        expert_reader.file_cache,
        "read_ahead",
        lambda _file, offset, size: read.append((offset, size)),
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
    monkeypatch.setattr(expert_reader.file_cache, "read_ahead", lambda *_: pytest.fail("was read"))
    with ExitStack() as closing:
        plan = lock_plan(layout, 1 << 40)
        ExpertReader([MappedFile(path, closing)], plan, COUNT, 1 << 30).choose(1, {3})
