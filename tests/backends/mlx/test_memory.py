"""Memory and bandwidth of the device that MLX runs on."""

import pytest

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends.device import available_memory
from backends.mlx import bandwidth, memory

WORKING_SET = 20 << 30


@pytest.fixture
def on_mac(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine with Apple's GPU, as far as MLX tells; the wired limits that are set."""
    limits: list[int] = []
    told = {"max_recommended_working_set_size": WORKING_SET}
    monkeypatch.setattr(memory, "has_gpu", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda: told)
    monkeypatch.setattr(mx, "set_wired_limit", limits.append)
    return limits


@pytest.mark.skipif(mx.metal.is_available(), reason="this machine has Apple's GPU")
def test_without_apples_gpu_the_machines_own_memory_counts() -> None:
    assert memory.working_set() is None
    assert memory.free_memory() == pytest.approx(available_memory(), rel=0.2)
    memory.raise_wired_limit()


def test_the_working_set_counts_less_what_is_held(on_mac: list[int]) -> None:
    before = memory.free_memory()
    held = mx.zeros((1 << 20,), dtype=mx.uint8)
    mx.eval(held)
    assert before <= WORKING_SET
    assert before - memory.free_memory() >= held.nbytes


def test_weights_are_wired_up_to_the_working_set(on_mac: list[int]) -> None:
    memory.raise_wired_limit()
    assert on_mac == [WORKING_SET]


def test_bandwidth_is_measured_by_reading() -> None:
    found = bandwidth.measured_on_device(64_000_000)
    assert found is not None
    assert found.source.startswith("measured: ")
    assert found.source.endswith("reading 64 MB")
    assert 1e7 < found.bytes_per_second < 1e14


def test_too_little_memory_is_not_measured() -> None:
    assert bandwidth.measured_on_device(1_000_000) is None
