"""A session on a model that a GPU cannot hold whole. The GPU is made up: its layers are computed
by the processor, as llama.cpp does where it finds no device."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.drafting.choose import memory_choice as split_choice
from app.drafting.choose import pair_knowledge
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading.placement import GPU_RESERVE
from app.loading.session_options import STREAM_OFF, STREAM_ON, SessionOptions
from app.loading.streaming import StreamOfferError
from app.paths import Paths
from backends.base import Model, OutOfMemoryError
from backends.engines.proof_process import ProofProcess
from backends.hardware.bandwidth import Bandwidth
from backends.llamacpp import library
from backends.llamacpp.library import Device
from backends.streaming.mapped_file import DiskSpeed
from backends.streaming.weight_plan import STREAMED_CHUNK
from models.metadata.memory_bill import compute_bytes, facts_of
from tests.fixtures.greedy import greedy_ids

Opened = Callable[..., Session]
LAYERS = 30
PLENTY = 10**12


@pytest.fixture
def opened(home: Path, monkeypatch: pytest.MonkeyPatch, demo: Model) -> Opened:
    """Open a session where a GPU has so many bytes for weights, and the machine so many free."""
    monkeypatch.setattr(library, "can_offload", lambda: True)
    monkeypatch.setattr(ProofProcess, "prove", lambda *_: None)
    monkeypatch.setattr(split_choice, "gpu_bandwidth", lambda: Bandwidth(900e9, "made up"))
    monkeypatch.setattr(pair_knowledge, "processor_bandwidth", lambda *_: Bandwidth(9e9, "made up"))
    monkeypatch.setattr(split_choice, "disk_speed", lambda *_: DiskSpeed(1e9, "made up"))
    working = compute_bytes(facts_of(demo.info.path), 512, STREAMED_CHUNK)

    def open_with(on_gpu: int, free: int = PLENTY, **options: str | int | None) -> Session:
        memory = GPU_RESERVE + working + on_gpu
        card = Device(1, "CUDA", "made up", memory, memory)
        monkeypatch.setattr(library, "_devices", lambda: [card])
        monkeypatch.setattr("app.engine.session_opening.available_memory", lambda: free)
        given = SessionOptions(**{"model": "demo", "draft": "off", "ctx": 512, **options})  # type: ignore[arg-type]
        return open_session(given, Paths.of_this_user(), lambda _: None)

    return open_with


@pytest.fixture
def half(demo_file: Path) -> int:
    """Bytes for the head, which is also the largest tensor, and about half of the layers."""
    return round(0.8 * demo_file.stat().st_size)


def test_what_fits_on_the_gpu_goes_there_whole(opened: Opened) -> None:
    with closing(opened(PLENTY)) as session:
        assert session.model.info.device == "GPU: made up"
        assert session.model.info.gpu_layers is None
        assert session.notes == ()


def test_as_many_layers_as_fit_go_to_the_gpu(opened: Opened, half: int) -> None:
    with closing(opened(half)) as session:
        info = session.model.info
        assert info.gpu_layers is not None
        assert 1 < info.gpu_layers <= LAYERS
        assert info.device == f"GPU: made up, {info.gpu_layers} layers"
        note = session.notes[0]
        assert "is larger than the GPU" in note
        assert f"{info.gpu_layers - 1} of 30 layers on the GPU" in note
        assert "tok/s" in note
        assert info.streamed_bytes_per_token == 0


def test_a_number_of_layers_still_works(opened: Opened) -> None:
    with closing(opened(PLENTY, gpu_layers=7)) as session:
        assert session.model.info.gpu_layers == 7
    with closing(opened(PLENTY, gpu_layers=0)) as session:
        assert session.model.info.device.startswith("CPU")
        assert session.model.info.gpu_layers is None


@pytest.mark.slow
def test_what_neither_holds_streams_if_agreed_to(opened: Opened, demo_file: Path) -> None:
    few, free = round(0.66 * demo_file.stat().st_size), round(1.45 * demo_file.stat().st_size)
    with pytest.raises(StreamOfferError, match="beside the GPU") as offer:
        opened(few, free)
    assert "of 30 layers on the GPU; " in offer.value.outlook.words
    with pytest.raises(OutOfMemoryError) as refused:
        opened(few, free, stream=STREAM_OFF)
    assert not isinstance(refused.value, StreamOfferError)
    with closing(opened(PLENTY)) as session:
        whole = greedy_ids(session)
    with closing(opened(few, free, stream=STREAM_ON)) as session:
        info = session.model.info
        assert info.gpu_layers is not None
        assert 0 < info.streamed_bytes_per_token < info.bytes_read_per_token
        assert "is larger than memory" in session.notes[0]
        assert greedy_ids(session) == whole
