"""How many layers go to GPUs, checked against every other division. The GPUs are made up."""

from dataclasses import replace
from itertools import product

import pytest

from app.loading.pass_time import ReadRates, SplitRates, SplitReads
from app.loading.placement import GPU_RESERVE, GpuRoom, MemoryPlan, fullest_split, split_at
from backends.files.attention import Attention, Layers
from backends.streaming.weight_plan import STREAMED_CHUNK
from models.metadata.memory_bill import ModelFacts, compute_bytes
from tests.fixtures.large_model import FACTS, HEAD_BYTES, LAYER_BYTES, LAYERS, LAYOUT

GB = 10**9
N_CTX = 8192
WORKING = compute_bytes(FACTS, N_CTX, STREAMED_CHUNK)
CACHE = FACTS.attention.cache_bytes(N_CTX) // LAYERS


def needed(count: int) -> int:
    """Bytes of one GPU for the head and the last layers, counted by hand."""
    layers = max(count - 1, 0)
    largest = HEAD_BYTES if count <= LAYERS else 0
    weights = HEAD_BYTES + layers * (LAYER_BYTES + CACHE)
    return weights + WORKING + largest + GPU_RESERVE if count else 0


@pytest.mark.parametrize("free", range(0, 48 * GB, 3 * GB))
def test_one_more_layer_would_not_fit(free: int) -> None:
    split = fullest_split(LAYOUT, FACTS, N_CTX, GpuRoom((free,)))
    fitting = [count for count in range(LAYERS + 2) if needed(count) <= free]
    assert split.gpu_layers == max(fitting)
    assert split.weights + split.beside.weight_bytes == LAYOUT.weight_bytes
    assert split.cache + split.beside_cache == FACTS.attention.cache_bytes(N_CTX)
    assert split.is_whole is (split.gpu_layers == LAYERS + 1)


@pytest.mark.parametrize(("free", "disk"), list(product([8 * GB, 24 * GB, 40 * GB], [None, 3e9])))
def test_no_division_that_fits_is_faster(free: int, disk: float | None) -> None:
    rates = SplitRates(ReadRates(disk or 1.0, 60e9), 900e9)
    lock_bytes = None if disk is None else 4 * GB

    def seconds(count: int) -> float:
        split = split_at(LAYOUT, FACTS, N_CTX, count)
        return rates.seconds(SplitReads.of(MemoryPlan(N_CTX, N_CTX, 0, lock_bytes, split)))

    chosen = fullest_split(LAYOUT, FACTS, N_CTX, GpuRoom((free,))).gpu_layers
    every = {count: seconds(count) for count in range(LAYERS + 2) if needed(count) <= free}
    assert every[chosen] == pytest.approx(min(every.values()))


@pytest.mark.parametrize("free", [(24 * GB, 24 * GB), (24 * GB, 8 * GB), (3 * GB, 30 * GB)])
def test_every_one_of_several_gpus_has_room_for_its_layers(free: tuple[int, int]) -> None:
    split = fullest_split(LAYOUT, FACTS, N_CTX, GpuRoom(free))
    usable = [one - GPU_RESERVE - WORKING for one in free]
    assert split.weights + split.cache <= sum(usable)
    alone = fullest_split(LAYOUT, FACTS, N_CTX, GpuRoom((max(free),)))
    smallest = min(free) / sum(free)
    held = split.gpu_layers * LAYER_BYTES
    assert held * smallest <= min(usable) + LAYER_BYTES
    if min(free) > 8 * GB:
        assert split.gpu_layers > alone.gpu_layers


def test_drafters_take_layers() -> None:
    without = fullest_split(LAYOUT, FACTS, N_CTX, GpuRoom((24 * GB,)))
    beside = fullest_split(LAYOUT, FACTS, N_CTX, GpuRoom((24 * GB,), 2 * GB))
    assert without.gpu_layers - beside.gpu_layers == pytest.approx(
        2 * GB / (LAYER_BYTES + CACHE), abs=1
    )


def test_layers_that_differ_count_for_what_they_keep_wherever_they_are() -> None:
    """Of eight layers seven keep a running state with its copies, one keys and values."""
    kinds = [Layers(1, 0, 0, 0, has_state=True), Layers(1, 8, 256, 256)]
    layers = tuple(kinds[layer % 8 == 7] for layer in range(LAYERS))
    facts = ModelFacts(1, 1, 1, 1, 131_072, Attention(layers), state_bytes=70 * 16_000_000)
    by_hand = [(16_000_000, 2 * 8 * 512 * N_CTX)[layer % 8 == 7] for layer in range(LAYERS)]
    for count in range(LAYERS + 2):
        split = split_at(LAYOUT, facts, N_CTX, count)
        first = max(LAYERS + 1 - count, 0)
        assert (split.beside_cache, split.cache) == (sum(by_hand[:first]), sum(by_hand[first:]))


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_running_state_and_its_copies_leave_the_reserve_alone(gpus: int) -> None:
    layers = (Layers(1, 0, 0, 0, has_state=True),) * LAYERS
    facts = replace(FACTS, attention=Attention(layers), state_bytes=LAYERS * 30_000_000)
    working = compute_bytes(facts, N_CTX, STREAMED_CHUNK)
    for free in range(4 * GB, 48 * GB, GB):
        split = fullest_split(LAYOUT, facts, N_CTX, GpuRoom((free,) * gpus))
        taken = split.weights + split.cache + gpus * (working + GPU_RESERVE)
        assert taken <= gpus * free or not split.gpu_layers
        assert split.cache == max(split.gpu_layers - 1, 0) * 30_000_000


def test_the_words_count_layers_as_people_do() -> None:
    assert split_at(LAYOUT, FACTS, N_CTX, 33).words == "32 of 80 layers on the GPU"
    assert split_at(LAYOUT, FACTS, N_CTX, 0).words == "0 of 80 layers on the GPU"
    assert split_at(LAYOUT, FACTS, N_CTX, 999).words == "80 of 80 layers on the GPU"
