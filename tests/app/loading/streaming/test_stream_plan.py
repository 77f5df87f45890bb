"""Memory of a model that streams: reserve and context first, then weights and drafters."""

from dataclasses import replace

import pytest

from app.loading.pass_time import ReadRates, pass_seconds
from app.loading.placement import can_stream, reserve, stream_plan, with_drafter
from backends.base import OutOfMemoryError
from backends.files.attention import Attention, Layers
from backends.streaming.weight_plan import STREAMED_CHUNK, Extent, PlacedTensor, Role, WeightLayout
from models.metadata.memory_bill import CHUNK, GraphSize, ModelFacts, bill, compute_bytes

GIGABYTE = 1_000_000_000
FACTS = ModelFacts(
    40 * GIGABYTE, 128_256, 8192, 28_672, 131_072, Attention((Layers(80, 8, 128, 128),))
)
"""A 70B model: 2.7 GB of cache at 8,192 tokens."""


@pytest.mark.parametrize("free", [4 * GIGABYTE, 14 * GIGABYTE, 30 * GIGABYTE])
def test_every_byte_of_free_memory_has_one_use(free: int) -> None:
    planned = stream_plan("big", FACTS, None, 8192, free)
    assert planned.lock_bytes is not None
    beside = bill(FACTS, planned.n_ctx).cache
    beside += compute_bytes(FACTS, planned.n_ctx, STREAMED_CHUNK)
    assert planned.lock_bytes + beside + reserve(free) == free
    assert planned.room == 0
    given = with_drafter(planned, GIGABYTE)
    assert (given.room, given.lock_bytes) == (GIGABYTE, planned.lock_bytes - GIGABYTE)


def test_graphs_are_those_of_the_longest_streamed_pass() -> None:
    """They grow with a pass in models with a running state."""

    def held(graph: GraphSize) -> int:
        lock_bytes = stream_plan("big", replace(FACTS, graph=graph), 512, 512, GIGABYTE).lock_bytes
        assert lock_bytes is not None
        return lock_bytes

    growing = held(GraphSize(1024, 40))
    assert growing == held(GraphSize(40 * STREAMED_CHUNK)) < held(GraphSize(40 * CHUNK))


def test_the_context_shrinks_so_that_weights_get_the_memory() -> None:
    assert stream_plan("big", FACTS, None, 8192, 30 * GIGABYTE).n_ctx == 8192
    assert stream_plan("big", FACTS, None, 8192, 14 * GIGABYTE).n_ctx == 4096
    assert stream_plan("big", FACTS, 8192, 8192, 14 * GIGABYTE).n_ctx == 8192


def test_drafters_get_no_more_than_there_is() -> None:
    planned = stream_plan("big", FACTS, None, 8192, 4 * GIGABYTE)
    given = with_drafter(planned, 100 * GIGABYTE)
    assert (given.room, given.lock_bytes) == (planned.lock_bytes, 0)


def test_what_cannot_even_stream_is_refused_with_figures() -> None:
    assert not can_stream(FACTS, 100_000_000)
    with pytest.raises(OutOfMemoryError, match="cannot even stream") as refused:
        stream_plan("big", FACTS, 65_536, 8192, 14 * GIGABYTE)
    assert "context 21.5 GB" in refused.value.why
    assert can_stream(FACTS, GIGABYTE)


def _layout(layers: int, size: int) -> WeightLayout:
    tensors = tuple(
        PlacedTensor(f"blk.{index}.w", Extent(0, index * size, size), Role.SHARED, index)
        for index in range(layers)
    )
    return WeightLayout((), tensors, layers)


def test_a_pass_takes_what_the_slower_of_disk_and_memory_takes() -> None:
    page = 1 << 16
    seconds = pass_seconds(_layout(10, page), 5 * page, ReadRates(page, 100 * page))
    assert seconds(0, 1) == pytest.approx(5.0)
    assert seconds(3 * page, 1) == pytest.approx(8.0)
    assert seconds(0, 3) == pytest.approx(5.2)
    quick = pass_seconds(_layout(10, page), 5 * page, ReadRates(1000 * page, 10 * page))
    assert quick(0, 1) == pytest.approx(1.0)
