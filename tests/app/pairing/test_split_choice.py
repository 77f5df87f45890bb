"""What a drafter takes of a GPU that holds a part of its target. The GPU is made up."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.drafting import draft_spec
from app.drafting.choose import memory_choice as split_choice
from app.drafting.choose.memory_choice import SplitChoice, StreamContenders
from app.loading.placement import GpuPlanner
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.hardware.bandwidth import Bandwidth
from backends.streaming.disk_speed import DiskSpeed
from models.reference import Reference
from tests.fixtures.large_model import FACTS, LAYOUT

pytestmark = pytest.mark.usefixtures("llamacpp")

GB = 10**9
PLANNER = GpuPlanner("big", FACTS, LAYOUT, None, 8192, None, (24 * GB,), 32 * GB)

Choose = Callable[..., SplitChoice]


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch, tiny_llama: Callable[..., Path], home: Path) -> Choose:
    """A choice for the figures of a large model, where a named drafter takes so many bytes."""
    monkeypatch.setattr(split_choice, "gpu_bandwidth", lambda: Bandwidth(900e9, "made up"))
    monkeypatch.setattr(split_choice, "processor_bandwidth", lambda *_: Bandwidth(60e9, "made up"))
    monkeypatch.setattr(split_choice, "disk_speed", lambda *_: DiskSpeed(3e9, "made up"))
    reference = Reference("big", tiny_llama(layers=1))
    paths = Paths.of_this_user()

    def of(
        named: int = 0, draft: str = "off", *, streams: bool = False, planner: GpuPlanner = PLANNER
    ) -> SplitChoice:
        monkeypatch.setattr(StreamContenders, "named_bytes", named)
        options = SessionOptions("big", draft)
        spec = draft_spec.parse(draft, paths, reference)
        return SplitChoice(reference, spec, options, paths, planner, streams)

    return of


def test_a_drafter_on_the_processor_takes_nothing_of_the_gpus(choose: Choose) -> None:
    choice = choose(draft="llama3.2-1b,cpu:llama3.2-1b")
    contenders = choice._contenders(choice._planned(PLANNER, 0))
    assert [node.name for node in contenders.spec.nodes] == ["llama3.2-1b"]


def test_a_named_drafter_takes_layers_and_no_context(choose: Choose) -> None:
    alone, outlook = choose().plan()
    beside, slower = choose(3 * GB).plan()
    assert alone.split is not None
    assert beside.split is not None
    assert alone.split.gpu_layers - 7 <= beside.split.gpu_layers < alone.split.gpu_layers
    assert (beside.n_ctx, beside.usual) == (alone.n_ctx, alone.usual)
    assert outlook is not None
    assert slower is not None
    assert outlook.rate is not None
    assert slower.rate is not None
    assert slower.rate < outlook.rate


def test_a_drafter_is_given_up_if_what_it_displaces_fits_nowhere(choose: Choose) -> None:
    planned, _ = choose().plan()
    assert planned.split is not None
    tight = replace(PLANNER, free=planned.split.beside.weight_bytes + 3 * GB)
    alone, _ = choose(planner=tight).plan()
    beside, _ = choose(10 * GB, planner=tight).plan()
    assert beside == alone


def test_a_whole_model_has_no_outlook(choose: Choose) -> None:
    planned, outlook = choose(planner=replace(PLANNER, gpus=(80 * GB,))).plan()
    assert planned.split is None
    assert outlook is None


def test_what_streams_beside_a_gpu_is_told(choose: Choose) -> None:
    planner = replace(PLANNER, free=8 * GB)
    planned, outlook = choose(2 * GB, streams=True, planner=planner).plan()
    assert planned.room == 2 * GB
    assert planned.lock_bytes
    assert outlook is not None
    assert outlook.streams
    assert "of 80 layers on the GPU; " in outlook.words
    assert "are read from disk for each token at 3 GB/s: about " in outlook.words


def test_without_a_known_rate_none_is_told(choose: Choose, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = choose()
    monkeypatch.setattr(split_choice, "gpu_bandwidth", lambda: None)
    _, outlook = choice.plan()
    assert outlook is not None
    assert "cannot be measured" in outlook.words
    assert not outlook.streams
