"""What is held in memory of a model that does not fit."""

from collections.abc import Callable
from mmap import PAGESIZE
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.streaming.weight_plan import (
    Extent,
    PlacedTensor,
    Role,
    WeightLayout,
    lock_plan,
    weight_layout,
)


def layers(count: int, size: int = 8 * PAGESIZE, *, experts: bool = False) -> WeightLayout:
    """An input table, layers of two tensors, and a head of 4 pages, one after another."""
    sizes: list[tuple[str, int, Role, int | None]] = [
        ("token_embd.weight", 4 * PAGESIZE, Role.ROWS, None)
    ]
    for layer in range(count):
        sizes.append((f"blk.{layer}.attn_q.weight", size, Role.SHARED, layer))
        kind = Role.EXPERTS if experts else Role.SHARED
        sizes.append((f"blk.{layer}.ffn_up_exps.weight", size, kind, layer))
    sizes.append(("output.weight", 4 * PAGESIZE, Role.SHARED, None))
    tensors: list[PlacedTensor] = []
    at = 0
    for name, length, role, layer in sizes:
        tensors.append(PlacedTensor(name, Extent(0, at, length), role, layer))
        at += length
    return WeightLayout((Path("model.gguf"),), tuple(tensors), count, 0.25 if experts else 1.0)


@given(budget=st.integers(0, 300 * PAGESIZE), count=st.integers(1, 12))
def test_a_plan_keeps_to_its_budget_and_loses_no_weight(budget: int, count: int):
    layout = layers(count)
    plan = lock_plan(layout, budget)
    assert plan.locked_bytes <= budget
    held = {one.name for one in layout.tensors if one.extent in plan.locked}
    streamed = {one.name for one in plan.streamed}
    assert held | streamed == {one.name for one in layout.tensors} - {"token_embd.weight"}
    assert not held & streamed
    assert plan.locked_bytes + plan.read_bytes_per_token == layout.bytes_per_token


def test_the_head_comes_first():
    layout = layers(4)
    assert lock_plan(layout, 4 * PAGESIZE).locked == (layout.tensors[-1].extent,)


def test_held_layers_are_spread_so_that_the_disk_reads_while_they_are_computed():
    plan = lock_plan(layers(8), (4 + 4 * 16) * PAGESIZE)
    assert [one.layer for one in plan.streamed] == [1, 1, 3, 3, 5, 5, 7, 7]


def test_weights_for_all_tokens_come_before_routed_experts():
    layout = layers(4, experts=True)
    plan = lock_plan(layout, (4 + 4 * 8) * PAGESIZE)
    assert {one.role for one in plan.streamed} == {Role.EXPERTS}
    assert plan.read_bytes_per_token == 4 * 8 * PAGESIZE // 4


@given(budget=st.integers(0, 150 * PAGESIZE), count=st.integers(1, 8))
def test_no_expert_is_held_before_all_weights_for_all_tokens(budget: int, count: int):
    layout = layers(count, experts=True)
    plan = lock_plan(layout, budget)
    held = [one for one in layout.tensors if one.extent in plan.locked]
    if any(one.role == Role.EXPERTS for one in held):
        assert {one.role for one in plan.streamed} <= {Role.EXPERTS}
        assert plan.shared_bytes == 0
    whole = sum(one.extent.size for one in layout.tensors if one.role == Role.EXPERTS)
    held_experts = sum(one.extent.size for one in held if one.role == Role.EXPERTS)
    assert plan.expert_bytes == whole - held_experts


def test_longer_passes_read_more_experts_and_no_more_than_all():
    plan = lock_plan(layers(4, experts=True), (4 + 4 * 8) * PAGESIZE)
    whole = 4 * 8 * PAGESIZE
    shares = [1 / 4, 7 / 16, 37 / 64]
    assert [plan.read_bytes(n) for n in (1, 2, 3)] == [round(share * whole) for share in shares]
    assert plan.read_bytes(64) == pytest.approx(whole, rel=1e-6)
    dense = lock_plan(layers(4), 8 * PAGESIZE)
    assert dense.read_bytes(1) == dense.read_bytes(64) > 0


@pytest.mark.slow
def test_tensors_lie_where_the_file_has_them(demo_file: Path):
    layout = weight_layout(demo_file)
    expected = {one.name: one for one in gguf.GGUFReader(demo_file).tensors}
    assert {one.name for one in layout.tensors} == set(expected)
    for one in layout.tensors:
        tensor = expected[one.name]
        assert one.extent.offset == tensor.data_offset
        assert 0 <= one.extent.size - tensor.n_bytes < 32
    assert layout.n_layers == 30
    assert layout.bytes_per_token == layout.weight_bytes  # its embedding is its head as well


def test_an_input_embedding_of_its_own_is_read_by_rows(tiny_llama: Callable[..., Path]):
    layout = weight_layout(tiny_llama())
    rows = [one.name for one in layout.tensors if one.role == Role.ROWS]
    assert rows == ["token_embd.weight"]
    assert {one.layer for one in layout.tensors} == {None, *range(layout.n_layers)}


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30, 80])
def test_everything_is_held_where_it_fits(count: int):
    plan = lock_plan(layers(count), 1 << 40)
    assert not plan.streamed
    assert plan.read_bytes_per_token == 0
