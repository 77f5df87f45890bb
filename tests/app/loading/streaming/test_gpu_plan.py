"""A model between GPUs, memory and disk: contexts, refusals and what is held. GPUs are made up."""

from dataclasses import replace

import pytest

from app.loading.pass_time import ReadRates, SplitRates, SplitReads, split_seconds
from app.loading.placement import GpuPlanner, MemoryPlan, reserve
from backends.base import OutOfMemoryError
from backends.streaming.weight_plan import STREAMED_CHUNK, lock_plan
from models.metadata.memory_bill import compute_bytes
from tests.fixtures.large_model import FACTS, LAYER_BYTES, LAYERS, LAYOUT

GB = 10**9
PLANNER = GpuPlanner("big", FACTS, LAYOUT, None, 8192, None, (24 * GB,), 32 * GB)


def test_what_fits_on_gpus_is_left_to_the_engine() -> None:
    assert replace(PLANNER, gpus=(80 * GB,)).plan() == MemoryPlan(8192, 8192, None)
    assert replace(PLANNER, gpus=(24 * GB,) * 3).plan().split is None


def test_the_context_is_halved_before_a_layer_goes_to_the_processor() -> None:
    planned = replace(PLANNER, gpus=(42 * GB,)).plan()
    assert planned.split is None
    assert 512 <= planned.n_ctx < planned.usual == 8192


def test_the_rest_stays_with_the_processor_where_it_fits() -> None:
    planned = PLANNER.plan()
    assert planned.split is not None
    assert (planned.n_ctx, planned.room, planned.lock_bytes) == (8192, None, None)
    assert 35 < planned.split.gpu_layers < 45


def test_the_context_is_halved_where_the_rest_would_not_fit() -> None:
    split = PLANNER.split(8192)
    rest = split.beside.weight_bytes + split.beside_cache + compute_bytes(FACTS, 8192)
    assert replace(PLANNER, free=rest).plan().n_ctx == 8192
    planned = replace(PLANNER, free=rest - 1).plan()
    assert (planned.n_ctx, planned.usual) == (4096, 8192)
    with pytest.raises(OutOfMemoryError) as refused:
        replace(PLANNER, free=rest - 1, asked=8192).plan()
    assert f"{split.gpu_layers - 1} of 80 layers on the GPU" in refused.value.why
    assert "beside the GPU" in refused.value.what


def test_a_context_that_the_model_lacks_is_left_to_the_backend() -> None:
    assert replace(PLANNER, asked=1 << 30).plan().n_ctx == 1 << 30


@pytest.mark.parametrize("gpu_layers", [1, 10, LAYERS])
def test_a_number_of_layers_is_taken_as_it_is(gpu_layers: int) -> None:
    split = replace(PLANNER, gpu_layers=gpu_layers, free=64 * GB).plan().split
    assert split is not None
    assert split.gpu_layers == gpu_layers
    assert replace(PLANNER, gpu_layers=LAYERS + 1).plan().split is None


@pytest.mark.parametrize("reserved", [0, 3 * GB])
def test_every_byte_of_memory_has_one_use_beside_a_gpu(reserved: int) -> None:
    free = 12 * GB
    planned = replace(PLANNER, free=free).streamed(reserved)
    split = planned.split
    assert split is not None
    assert planned.lock_bytes is not None
    beside = split.beside_cache + compute_bytes(FACTS, planned.n_ctx, STREAMED_CHUNK)
    assert planned.lock_bytes + beside + reserve(free) == free
    assert planned.room == reserved
    assert lock_plan(split.beside, planned.lock_bytes).locked_bytes <= planned.lock_bytes


def test_what_cannot_even_stream_is_refused() -> None:
    with pytest.raises(OutOfMemoryError, match="cannot even stream"):
        replace(PLANNER, free=200_000_000).streamed()


def test_gpus_and_processor_take_their_time_in_turn() -> None:
    rates = SplitRates(ReadRates(3e9, 60e9), 900e9)
    reads = SplitReads(9 * GB, 6 * GB, 12 * GB)
    assert rates.seconds(reads) == pytest.approx(2.0 + 0.01)
    assert rates.seconds(replace(reads, streamed=0)) == pytest.approx(0.2 + 0.01)
    assert rates.seconds(replace(reads, streamed=0), 4) == pytest.approx(4 * (0.2 + 0.01))


def test_a_drafter_on_a_gpu_costs_the_layers_it_displaces() -> None:
    rates = SplitRates(ReadRates(1.0, 60e9), 900e9)
    seconds = split_seconds(replace(PLANNER, free=64 * GB).plan, rates)
    layers = round(
        (seconds(2 * GB, 1) - seconds(0, 1)) / (LAYER_BYTES / 60e9 - LAYER_BYTES / 900e9)
    )
    assert 3 <= layers <= 5
    full = replace(PLANNER, free=22 * GB, asked=8192)
    assert split_seconds(full.plan, rates)(20 * GB, 1) == float("inf")
