"""What goes to a GPU and what stays with the processor, counted as llama.cpp does."""

from pathlib import Path

import pytest

from backends.streaming.weight_plan import (
    Extent,
    PlacedTensor,
    Role,
    WeightLayout,
    beside_gpu,
    layer_bytes,
    on_gpu,
    weight_layout,
)

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
    assert beside.bytes_per_token == 0


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
    assert on + beside_gpu(whole, count).bytes_per_token == whole.bytes_per_token


def test_a_real_file_divides_without_rest(demo_file: Path) -> None:
    whole = weight_layout(demo_file)
    parts = layer_bytes(whole)
    assert len(parts) == whole.n_layers + 1
    assert sum(part.read for part in parts) == whole.bytes_per_token
    for count in range(len(parts) + 1):
        gone = sum(tensor.extent.size for tensor in on_gpu(whole, count))
        assert gone + beside_gpu(whole, count).weight_bytes == whole.weight_bytes
