"""Memory and bandwidth of the device that MLX runs on."""

from collections.abc import Callable
from pathlib import Path

import pytest

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import OutOfMemoryError
from backends.hardware.host import available_memory
from backends.mlx import device as mlx_device

WORKING_SET = 20 << 30


@pytest.fixture
def on_mac(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine with Apple's GPU, as far as MLX tells; the wired limits that are set."""
    limits: list[int] = []
    monkeypatch.setattr(mlx_device, "available_memory", lambda: 2 * WORKING_SET)
    told = {"max_recommended_working_set_size": WORKING_SET}
    monkeypatch.setattr(mlx_device, "has_gpu", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda: told)
    monkeypatch.setattr(mx, "set_wired_limit", limits.append)
    return limits


@pytest.mark.skipif(mx.metal.is_available(), reason="this machine has Apple's GPU")
def test_without_apples_gpu_the_machines_own_memory_counts() -> None:
    assert mlx_device.working_set() is None
    assert mlx_device.free_memory() == pytest.approx(available_memory(), rel=0.2)
    mlx_device.raise_wired_limit()


def test_the_working_set_counts_less_what_is_held(on_mac: list[int]) -> None:
    before = mlx_device.free_memory()
    held = mx.zeros((1 << 20,), dtype=mx.uint8)
    mx.eval(held)
    assert before <= WORKING_SET
    assert before - mlx_device.free_memory() >= held.nbytes


def test_what_other_programs_hold_is_not_free(
    on_mac: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlx_device, "available_memory", lambda: 3 << 30)
    assert mlx_device.free_memory() == (3 << 30) + mx.get_cache_memory()
    told = {"total_memory": 24 << 30, "free_memory": 2 << 30}
    monkeypatch.setattr(mx, "device_info", lambda: told)
    monkeypatch.setattr(mx.cuda, "is_available", lambda: True)
    assert mlx_device.free_memory() == (2 << 30) + mx.get_cache_memory()


def test_weights_are_wired_up_to_the_working_set(on_mac: list[int]) -> None:
    mlx_device.raise_wired_limit()
    assert on_mac == [WORKING_SET]


def test_bandwidth_is_measured_by_reading() -> None:
    found = mlx_device.measured_on_device(64_000_000)
    assert found is not None
    assert found.source.startswith("measured: ")
    assert found.source.endswith("reading 64 MB")
    assert 1e7 < found.bytes_per_second < 1e14


def test_a_context_that_does_not_fit_is_refused_with_one_that_does(
    small_mlx: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = mlx.load(small_mlx("plain"))
    bytes_per_token = loaded.open(1).kv_bytes_per_token
    monkeypatch.setattr("backends.mlx.model.available_memory", lambda: 300 * bytes_per_token)
    with pytest.raises(OutOfMemoryError) as refused:
        loaded.open(301)
    assert refused.value.remedy == "Use --ctx 256 or less."
    loaded.open(256)
    loaded.close()


def test_too_little_memory_is_not_measured() -> None:
    assert mlx_device.measured_on_device(1_000_000) is None
