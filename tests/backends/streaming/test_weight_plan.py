"""Where weights lie, and which are held, stream, or go to a GPU."""

from collections.abc import Callable
from mmap import PAGESIZE
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.streaming import mapped_file
from backends.streaming.mapped_file import measured_disk_speed
from backends.streaming.weight_plan import (
    Extent,
    PlacedTensor,
    Role,
    WeightLayout,
    beside_gpu,
    layer_bytes,
    lock_plan,
    on_gpu,
    streamed_chunk,
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
    assert plan.locked_bytes + plan.read_bytes() == layout.read_bytes()


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
    assert plan.read_bytes() == 4 * 8 * PAGESIZE // 4


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
    assert layout.read_bytes() == layout.weight_bytes  # its embedding is its head as well


def test_an_input_embedding_of_its_own_is_read_by_rows(tiny_llama: Callable[..., Path]):
    layout = weight_layout(tiny_llama())
    rows = [one.name for one in layout.tensors if one.role == Role.ROWS]
    assert rows == ["token_embd.weight"]
    assert {one.layer for one in layout.tensors} == {None, *range(layout.n_layers)}


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30, 80])
def test_everything_is_held_where_it_fits(count: int):
    plan = lock_plan(layers(count), 1 << 40)
    assert not plan.streamed
    assert plan.read_bytes() == 0


LAYERS = 4
SHARED, EXPERTS, ROWS = Role.SHARED, Role.EXPERTS, Role.ROWS


def layout(*, is_tied: bool = False) -> WeightLayout:
    """Layers of 10 bytes, and in each 8 of experts, of which a token reads a quarter."""
    rows = [("token_embd.weight", 100, SHARED if is_tied else ROWS, None)]
    rows += [] if is_tied else [("output.weight", 50, SHARED, None)]
    rows += [("output_norm.weight", 1, SHARED, None)]
    for layer in range(LAYERS):
        rows += [(f"blk.{layer}.attn_q.weight", 10, SHARED, layer)]
        rows += [(f"blk.{layer}.ffn_up_exps.weight", 8, EXPERTS, layer)]
    tensors: list[PlacedTensor] = []
    for name, size, role, layer in rows:
        begin = tensors[-1].extent.end if tensors else 0
        tensors.append(PlacedTensor(name, Extent(0, begin, size), role, layer))
    return WeightLayout((Path("model"),), tuple(tensors), LAYERS, 0.25)


@pytest.mark.parametrize("is_tied", [False, True])
def test_the_head_goes_first_then_the_last_layers(is_tied: bool) -> None:
    whole = layout(is_tied=is_tied)
    assert beside_gpu(whole, 0) is whole
    assert on_gpu(whole, 0) == ()
    for count in range(1, LAYERS + 3):
        gone = {tensor.name for tensor in on_gpu(whole, count)}
        assert "output_norm.weight" in gone
        assert ("output.weight" in gone) is not is_tied
        moved = {tensor.layer for tensor in on_gpu(whole, count) if tensor.layer is not None}
        assert moved == set(range(max(LAYERS + 1 - count, 0), LAYERS))
        beside = beside_gpu(whole, count)
        assert beside.n_layers == max(LAYERS + 1 - count, 0)
        kept = {tensor.name for tensor in beside.tensors}
        assert kept.isdisjoint(gone)
        assert kept | gone == {tensor.name for tensor in whole.tensors}


@pytest.mark.parametrize("is_tied", [False, True])
def test_the_input_embedding_stays_and_only_its_rows_are_read(is_tied: bool) -> None:
    beside = beside_gpu(layout(is_tied=is_tied), LAYERS + 1)
    assert [(one.name, one.role) for one in beside.tensors] == [("token_embd.weight", ROWS)]
    assert beside.read_bytes() == 0


def test_a_head_that_is_the_embedding_is_counted_where_it_is_copied_to() -> None:
    *layers, head = layer_bytes(layout(is_tied=True))
    assert (head.stored, head.read) == (101, 101)
    *layers, head = layer_bytes(layout())
    assert (head.stored, head.read) == (51, 51)
    assert [(layer.stored, layer.read) for layer in layers] == [(18, 12)] * LAYERS


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("count", range(LAYERS + 2))
def test_every_byte_that_a_token_reads_is_read_in_one_place(count: int, is_tied: bool) -> None:
    whole = layout(is_tied=is_tied)
    parts = layer_bytes(whole)
    on = sum(part.read for part in parts[len(parts) - count :])
    assert on + beside_gpu(whole, count).read_bytes() == whole.read_bytes()


def test_a_real_file_divides_without_rest(demo_file: Path) -> None:
    whole = weight_layout(demo_file)
    parts = layer_bytes(whole)
    assert len(parts) == whole.n_layers + 1
    assert sum(part.read for part in parts) == whole.read_bytes()
    for count in range(len(parts) + 1):
        gone = sum(tensor.extent.size for tensor in on_gpu(whole, count))
        assert gone + beside_gpu(whole, count).weight_bytes == whole.weight_bytes


@pytest.mark.parametrize(
    ("megabytes", "tokens"),
    [(0, 512), (12, 512), (33, 512), (73, 256), (132, 128), (240, 64), (20_000, 64)],
)
def test_a_larger_matrix_makes_chunks_shorter(megabytes: int, tokens: int) -> None:
    assert streamed_chunk(megabytes * 1_000_000) == tokens


def test_a_file_on_disk_is_measured_and_the_figure_says_how(demo_file: Path):
    speed = measured_disk_speed(demo_file)
    if speed is None:
        pytest.skip("this file system has no direct reading")
    assert speed.bytes_per_second > 0
    assert speed.source.startswith("measured: ")
    assert demo_file.name in speed.source


def test_every_piece_is_read_once_from_the_middle_on():
    pieces = mapped_file._offsets(10 * mapped_file._READ_AT_ONCE + 5)
    assert [at // mapped_file._READ_AT_ONCE for at in pieces] == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]


def test_no_figure_where_none_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    small = tmp_path / "small.gguf"
    small.write_bytes(bytes(1000))
    assert measured_disk_speed(small) is None
    assert measured_disk_speed(tmp_path / "missing.gguf") is None
    assert measured_disk_speed(tmp_path) is None


def test_no_figure_where_the_disk_fails(demo_file: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(_path: Path) -> None:
        raise OSError

    monkeypatch.setattr(mapped_file, "_open_uncached", fail)
    assert measured_disk_speed(demo_file) is None
