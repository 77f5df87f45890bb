"""The GPUs that llama.cpp would use, from its table of devices. The GPUs here are made up."""

from contextlib import closing
from dataclasses import replace

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.learned import speeds as memory_bandwidth
from backends import llamacpp
from backends.engines import engine_facts as engine_resources
from backends.engines.backend_selection import LLAMACPP, MLX
from backends.hardware.host import Gpu
from backends.llamacpp import library
from backends.llamacpp.library import Device
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.models import TRUNK

GB = 10**9
PROCESSOR = Device(0, "CPU", "Xeon", 20 * GB, 24 * GB)
CARD = Device(1, "CUDA", "RTX", 22 * GB, 24 * GB)
AGAIN = Device(1, "Vulkan", "RTX", 22 * GB, 24 * GB)
OTHER = Device(1, "Vulkan", "Arc", 7 * GB, 8 * GB)
INSIDE = Device(2, "Vulkan", "Iris", 10 * GB, 16 * GB)
REMOTE = Device(1, "RPC", "host", 40 * GB, 48 * GB)
SILENT = Device(1, "CUDA", "RTX", 0, 0)
APPLE = Device(1, "MTL", "M4", 10 * GB, 16 * GB)
RTX = Gpu("RTX", 22 * GB, 24 * GB)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([PROCESSOR], ()),
        ([CARD, PROCESSOR], (RTX,)),
        ([CARD, CARD, PROCESSOR], (RTX, RTX)),
        ([CARD, AGAIN, OTHER, PROCESSOR], (RTX, Gpu("Arc", 7 * GB, 8 * GB))),
        ([CARD, INSIDE, PROCESSOR], (RTX,)),
        ([INSIDE, PROCESSOR], (Gpu("Iris", 10 * GB, 16 * GB, is_unified=True),)),
        ([REMOTE, PROCESSOR], ()),
        ([SILENT], (Gpu("RTX", None, None),)),
        ([APPLE], (Gpu("M4", 10 * GB, 16 * GB, is_unified=True),)),
    ],
    ids=["none", "one", "two", "twice", "inside too", "inside", "remote", "silent", "apple"],
)
def test_the_gpus_chosen(
    monkeypatch: pytest.MonkeyPatch, devices: list[Device], expected: tuple[Gpu, ...]
) -> None:
    monkeypatch.setattr(library, "can_offload", lambda: True)
    monkeypatch.setattr(library, "_devices", lambda: devices)
    assert library.gpus() == expected


@pytest.mark.parametrize(
    ("devices", "gpu_layers", "count"),
    [
        ([CARD], None, 1),
        ([CARD], 20, 1),
        ([CARD], 0, 0),
        ([CARD, SILENT], None, 0),
        ([INSIDE], None, 0),
        ([APPLE], None, 0),
        ([PROCESSOR], None, 0),
    ],
)
def test_layers_are_counted_where_memory_is_separate_and_known(
    monkeypatch: pytest.MonkeyPatch, devices: list[Device], gpu_layers: int | None, count: int
) -> None:
    monkeypatch.setattr(library, "can_offload", lambda: True)
    monkeypatch.setattr(library, "_devices", lambda: devices)
    assert len(engine_resources.separate_gpus(LLAMACPP, gpu_layers)) == count
    assert engine_resources.separate_gpus(MLX, gpu_layers) == ()


@pytest.mark.parametrize(
    ("devices", "gpu_layers", "free"),
    [
        ([PROCESSOR], None, 12 * GB),
        ([CARD, INSIDE], None, None),
        ([CARD], 0, 12 * GB),
        ([INSIDE], None, 10 * GB),
        ([APPLE], 20, 12 * GB),
        ([replace(APPLE, free=14 * GB)], None, 12 * GB),
        ([replace(APPLE, free=0, total=0)], None, 12 * GB),
    ],
)
def test_memory_that_gpus_share_is_billed(
    monkeypatch: pytest.MonkeyPatch, devices: list[Device], gpu_layers: int | None, free: int | None
) -> None:
    monkeypatch.setattr(library, "can_offload", lambda: len(devices) > 1 or devices != [PROCESSOR])
    monkeypatch.setattr(library, "_devices", lambda: devices)
    monkeypatch.setattr(engine_resources, "available_memory", lambda: 12 * GB)
    assert engine_resources.free_memory(LLAMACPP, gpu_layers) == free


def test_the_table_of_this_machine_has_its_processor() -> None:
    library.start()
    kinds = {device.registry: device.kind for device in library._devices()}
    assert kinds["CPU"] == 0
    assert all(device.name for device in library._devices())


def test_without_the_table_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> list[Device]:
        raise OSError(2, "No such file")

    monkeypatch.setattr(library, "can_offload", lambda: True)
    monkeypatch.setattr(library, "_devices", missing)
    assert library.gpus() == ()


@pytest.mark.parametrize(
    ("devices", "asked"),
    [([CARD], ["RTX"]), ([CARD, CARD], ["RTX"]), ([CARD, OTHER], []), ([], [])],
)
def test_the_bandwidth_is_that_of_the_cards_that_run_models(
    monkeypatch: pytest.MonkeyPatch, devices: list[Device], asked: list[str]
) -> None:
    names: list[str] = []
    monkeypatch.setattr(library, "can_offload", lambda: True)
    monkeypatch.setattr(library, "_devices", lambda: devices)
    monkeypatch.setattr(memory_bandwidth, "of_gpu", names.append)
    memory_bandwidth.gpu_bandwidth()
    assert names == asked


def test_a_device_is_named_by_its_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "can_offload", lambda: False)
    assert library.device(None).startswith("CPU: ")
    monkeypatch.setattr(library, "can_offload", lambda: True)
    monkeypatch.setattr(library, "_devices", lambda: [CARD, OTHER])
    assert library.device(0).startswith("CPU: ")
    assert library.device(None) == "GPU: RTX + Arc"
    assert library.device(20) == "GPU: RTX + Arc, 20 layers"
    monkeypatch.setattr(library, "_devices", list[Device])
    assert (library.device(None), library.device(20)) == ("GPU", "GPU: 20 layers")


@pytest.mark.parametrize(("gpu_layers", "partly"), [(TRUNK + 1, TRUNK + 1), (TRUNK + 2, None)])
def test_a_model_that_predicts_ahead_is_whole_with_its_further_layers_too(
    monkeypatch: pytest.MonkeyPatch, tiny: Tiny, gpu_layers: int, partly: int | None
) -> None:
    """As the engine counts: the head, the layer that predicts, and those of the trunk."""
    monkeypatch.setattr(library, "can_offload", lambda: True)
    monkeypatch.setattr(library, "_devices", lambda: [CARD])
    with closing(llamacpp.load(tiny("qwen35"), gpu_layers=gpu_layers)) as model:
        assert model.info.gpu_layers == partly
