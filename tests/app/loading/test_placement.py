"""Where a model goes: each byte of memory, GPUs and disk has one use, or it is refused."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading import placement
from app.loading.pass_time import ReadRates, SplitRates, pass_seconds, split_seconds, streamed_bytes
from app.loading.placement import (
    GPU_RESERVE,
    GpuPlanner,
    MemoryPlan,
    can_stream,
    check_new_context,
    drafter_context,
    fullest_split,
    open_context,
    plan,
    reserve,
    split_at,
    stream_plan,
    with_drafter,
)
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import DraftUnavailableError, Model, ModelInfo, OutOfMemoryError, UsageError
from backends.files.attention import Attention, Layers
from backends.streaming.weight_plan import (
    STREAMED_CHUNK,
    Extent,
    PlacedTensor,
    Role,
    WeightLayout,
    lock_plan,
)
from models.metadata.memory_bill import CHUNK, GraphSize, ModelFacts, bill, compute_bytes, facts_of
from tests.fixtures.large_model import FACTS, HEAD_BYTES, LAYER_BYTES, LAYERS, LAYOUT
from tests.fixtures.metrics import LIVE

GIGABYTE = 1_000_000_000

PLANNED = ModelFacts(
    5 * GIGABYTE, 128_256, 4096, 14_336, 131_072, Attention((Layers(32, 8, 128, 128),))
)
"""An 8B model: a gigabyte of cache at 8,192 tokens."""

SMALL = ModelFacts(GIGABYTE, 128_256, 2048, 8192, 131_072, Attention((Layers(16, 8, 64, 64),)))


def test_what_fits_gets_the_usual_context_and_leaves_the_rest_to_drafters() -> None:
    planned = plan("big", PLANNED, None, 8192, 10 * GIGABYTE)
    assert (planned.n_ctx, planned.usual) == (8192, 8192)
    assert planned.room == 10 * GIGABYTE - bill(PLANNED, 8192).total


def test_the_usual_context_is_no_longer_than_the_models_own() -> None:
    short = ModelFacts(1, 1, 1, 1, 2048, Attention(()))
    assert plan("short", short, None, 8192, GIGABYTE).n_ctx == 2048


def test_the_context_is_halved_only_when_the_model_alone_does_not_fit() -> None:
    free = bill(PLANNED, 4096).total
    planned = plan("big", PLANNED, None, 8192, free)
    assert (planned.n_ctx, planned.usual, planned.room) == (4096, 8192, 0)


def test_a_model_that_cannot_fit_is_refused_with_figures() -> None:
    with pytest.raises(OutOfMemoryError) as refused:
        plan("big", PLANNED, None, 8192, 3 * GIGABYTE)
    assert "big with a context of 512 tokens needs 5.1 GB of memory" in str(refused.value)
    assert "weights 5.0 GB" in refused.value.why
    assert "3.0 GB are free" in refused.value.why
    assert "smaller model" in refused.value.remedy


def test_a_context_asked_for_is_not_halved_but_another_is_offered() -> None:
    free = bill(PLANNED, 4096).total
    with pytest.raises(OutOfMemoryError) as refused:
        plan("big", PLANNED, 8192, 8192, free)
    assert refused.value.remedy == "Use --ctx 4096 or less."
    assert plan("big", PLANNED, 4096, 8192, free).n_ctx == 4096


def test_a_gpu_or_a_context_the_model_lacks_is_left_to_the_backend() -> None:
    assert plan("big", PLANNED, None, 8192, None).room is None
    assert plan("big", PLANNED, 1 << 30, 8192, GIGABYTE).n_ctx == 1 << 30


def test_a_drafter_gets_the_targets_context_where_there_is_room() -> None:
    assert drafter_context("1b", SMALL, 8192, 10 * GIGABYTE) == (8192, [])
    assert drafter_context("1b", SMALL, 8192, None) == (8192, [])


def test_a_drafter_is_shrunk_and_then_given_up() -> None:
    n_ctx, notes = drafter_context("1b", SMALL, 8192, bill(SMALL, 2048).total)
    assert n_ctx == 2048
    assert notes == ["memory is short: 1b drafts up to 2,048 tokens of context, not 8,192"]
    with pytest.raises(DraftUnavailableError, match="1b is not used: memory is short") as refused:
        drafter_context("1b", SMALL, 8192, GIGABYTE)
    assert "it needs 1.1 GB (weights 1.0 GB" in refused.value.why
    assert "1.0 GB are free beside the model" in refused.value.why


def test_a_context_is_halved_where_only_the_engine_knows_what_fits(
    demo: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.llamacpp.model.available_memory", lambda: 100_000_000)
    planned = plan("demo", facts_of(demo.info.path), None, 8192, None)
    context, notes = open_context(demo, planned, None)
    assert context.n_ctx == 2048
    assert notes == ["memory is short: the context is 2,048 tokens instead of 8,192"]
    context.close()
    with pytest.raises(OutOfMemoryError):
        open_context(demo, planned, 8192)


@pytest.fixture
def opened(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, SessionOptions], Session]:
    """Open a session on a machine with so many bytes free."""

    def open_with(free: int, options: SessionOptions) -> Session:
        monkeypatch.setattr("app.engine.session_opening.free_memory", lambda *_: free)
        return open_session(options, Paths.of_this_user(), lambda _: None)

    return open_with


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_a_session_gives_up_the_drafter_and_keeps_its_context(
    opened: Callable[[int, SessionOptions], Session], tiny_llama: Callable[..., Path]
) -> None:
    target, drafter = tiny_llama(layers=4), tiny_llama(layers=1)
    options = SessionOptions(model=str(target), draft=f"lookup,{drafter}")
    free = bill(facts_of(target), 512).total + 100_000
    with closing(opened(free, options)) as session:
        assert session.context.facts.n_ctx == 512
        assert session.drafting.names == ["lookup"]
        assert "is not used: memory is short" in session.drafting.missing
    with closing(opened(10 * free, options)) as session:
        assert session.drafting.names[:2] == ["lookup", str(drafter)]
        assert session.notes == ()


@pytest.mark.usefixtures("llamacpp")
def test_a_session_that_cannot_fit_loads_nothing(
    opened: Callable[[int, SessionOptions], Session],
    tiny_llama: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("something was loaded")

    monkeypatch.setattr("app.loading.checked_loader.CheckedLoader.load", load)
    with pytest.raises(OutOfMemoryError, match="0 MB are free"):
        opened(1000, SessionOptions(model=str(tiny_llama())))


@pytest.mark.usefixtures("llamacpp")
def test_a_context_the_model_lacks_is_called_so(
    opened: Callable[[int, SessionOptions], Session], tiny_llama: Callable[..., Path]
) -> None:
    with pytest.raises(UsageError, match="out of range"):
        opened(10 * GIGABYTE, SessionOptions(model=str(tiny_llama()), ctx=1 << 30))


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
    split = fullest_split(LAYOUT, FACTS, N_CTX, (free,))
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
        streamed = streamed_bytes(MemoryPlan(N_CTX, N_CTX, 0, lock_bytes, split))
        return rates.seconds(split.read, streamed, split.beside.read_bytes())

    chosen = fullest_split(LAYOUT, FACTS, N_CTX, (free,)).gpu_layers
    every = {count: seconds(count) for count in range(LAYERS + 2) if needed(count) <= free}
    assert every[chosen] == pytest.approx(min(every.values()))


@pytest.mark.parametrize("free", [(24 * GB, 24 * GB), (24 * GB, 8 * GB), (3 * GB, 30 * GB)])
def test_every_one_of_several_gpus_has_room_for_its_layers(free: tuple[int, int]) -> None:
    split = fullest_split(LAYOUT, FACTS, N_CTX, free)
    usable = [one - GPU_RESERVE - WORKING for one in free]
    assert split.weights + split.cache <= sum(usable)
    alone = fullest_split(LAYOUT, FACTS, N_CTX, (max(free),))
    smallest = min(free) / sum(free)
    held = split.gpu_layers * LAYER_BYTES
    assert held * smallest <= min(usable) + LAYER_BYTES
    if min(free) > 8 * GB:
        assert split.gpu_layers > alone.gpu_layers


def test_drafters_take_layers() -> None:
    without = fullest_split(LAYOUT, FACTS, N_CTX, (24 * GB,))
    beside = fullest_split(LAYOUT, FACTS, N_CTX, (24 * GB,), 2 * GB)
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
        split = fullest_split(LAYOUT, facts, N_CTX, (free,) * gpus)
        taken = split.weights + split.cache + gpus * (working + GPU_RESERVE)
        assert taken <= gpus * free or not split.gpu_layers
        assert split.cache == max(split.gpu_layers - 1, 0) * 30_000_000


def test_the_words_count_layers_as_people_do() -> None:
    assert split_at(LAYOUT, FACTS, N_CTX, 33).words == "32 of 80 layers on the GPU"
    assert split_at(LAYOUT, FACTS, N_CTX, 0).words == "0 of 80 layers on the GPU"
    assert split_at(LAYOUT, FACTS, N_CTX, 999).words == "80 of 80 layers on the GPU"


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
    assert rates.seconds(9 * GB, 6 * GB, 18 * GB) == pytest.approx(2.0 + 0.01)
    assert rates.seconds(9 * GB, 0, 12 * GB) == pytest.approx(0.2 + 0.01)
    assert rates.seconds(9 * GB, 0, 12 * GB, 4) == pytest.approx(4 * (0.2 + 0.01))


def test_a_drafter_on_a_gpu_costs_the_layers_it_displaces() -> None:
    rates = SplitRates(ReadRates(1.0, 60e9), 900e9)
    seconds = split_seconds(replace(PLANNER, free=64 * GB).plan, rates)
    layers = round(
        (seconds(2 * GB, 1) - seconds(0, 1)) / (LAYER_BYTES / 60e9 - LAYER_BYTES / 900e9)
    )
    assert 3 <= layers <= 5
    full = replace(PLANNER, free=22 * GB, asked=8192)
    assert split_seconds(full.plan, rates)(20 * GB, 1) == float("inf")


STREAMED = ModelFacts(
    40 * GIGABYTE, 128_256, 8192, 28_672, 131_072, Attention((Layers(80, 8, 128, 128),))
)
"""A 70B model: 2.7 GB of cache at 8,192 tokens."""


@pytest.mark.parametrize("free", [4 * GIGABYTE, 14 * GIGABYTE, 30 * GIGABYTE])
def test_every_byte_of_free_memory_has_one_use(free: int) -> None:
    planned = stream_plan("big", STREAMED, None, 8192, free)
    assert planned.lock_bytes is not None
    beside = bill(STREAMED, planned.n_ctx).cache
    beside += compute_bytes(STREAMED, planned.n_ctx, STREAMED_CHUNK)
    assert planned.lock_bytes + beside + reserve(free) == free
    assert planned.room == 0
    given = with_drafter(planned, GIGABYTE)
    assert (given.room, given.lock_bytes) == (GIGABYTE, planned.lock_bytes - GIGABYTE)


def test_graphs_are_those_of_the_longest_streamed_pass() -> None:
    """They grow with a pass in models with a running state."""

    def held(graph: GraphSize) -> int:
        lock_bytes = stream_plan(
            "big", replace(STREAMED, graph=graph), 512, 512, GIGABYTE
        ).lock_bytes
        assert lock_bytes is not None
        return lock_bytes

    growing = held(GraphSize(1024, 40))
    assert growing == held(GraphSize(40 * STREAMED_CHUNK)) < held(GraphSize(40 * CHUNK))


def test_the_context_shrinks_so_that_weights_get_the_memory() -> None:
    assert stream_plan("big", STREAMED, None, 8192, 30 * GIGABYTE).n_ctx == 8192
    assert stream_plan("big", STREAMED, None, 8192, 14 * GIGABYTE).n_ctx == 4096
    assert stream_plan("big", STREAMED, 8192, 8192, 14 * GIGABYTE).n_ctx == 8192


def test_drafters_get_no_more_than_there_is() -> None:
    planned = stream_plan("big", STREAMED, None, 8192, 4 * GIGABYTE)
    given = with_drafter(planned, 100 * GIGABYTE)
    assert (given.room, given.lock_bytes) == (planned.lock_bytes, 0)


def test_what_cannot_even_stream_is_refused_with_figures() -> None:
    assert not can_stream(STREAMED, 100_000_000)
    with pytest.raises(OutOfMemoryError, match="cannot even stream") as refused:
        stream_plan("big", STREAMED, 65_536, 8192, 14 * GIGABYTE)
    assert "context 21.5 GB" in refused.value.why
    assert can_stream(STREAMED, GIGABYTE)


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


CHECKED = ModelFacts(1, 1, 64, 64, 8192, Attention((Layers(32, 8, 128, 128),)))
INFO: ModelInfo = replace(LIVE.model, context_limit=8192)


@pytest.mark.parametrize(("n_ctx", "why"), [(10, "at least 512"), (99999999, "at most 8,192")])
def test_sizes_beyond_sense_and_training_are_refused(n_ctx: int, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_new_context(n_ctx, INFO, 4096, None)
    assert why in refused.value.why


def test_without_a_model_only_sense_is_checked() -> None:
    check_new_context(512, None, 0, None)
    with pytest.raises(UsageError):
        check_new_context(511, None, 0, None)


def test_a_context_that_does_not_fit_is_refused_and_a_smaller_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "facts_of_target", lambda _: CHECKED)
    monkeypatch.setattr(placement, "free_memory", lambda *_: 0)
    with pytest.raises(OutOfMemoryError):
        check_new_context(8192, INFO, 512, None)
    check_new_context(512, INFO, 4096, None)
