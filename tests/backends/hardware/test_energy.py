"""Energy and bandwidth of processors and of NVIDIA cards."""

import math
import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from backends.base import OutOfMemoryError
from backends.hardware import bandwidth
from backends.hardware.bandwidth import measured_on_cpu, of_gpu
from backends.hardware.nvidia import EnergyMeter, energy_meter

LIMIT = 262_143_328_850


class NVMLError(Exception):
    pass


class FakeNvml(ModuleType):
    """NVML of a machine with some GPUs, by name.

    Of each its millijoules, None if it does not count, and its memory's megahertz and bits.
    """

    NVMLError = NVMLError
    NVML_CLOCK_MEM = 2
    gpus: dict[str, int | None]

    def __init__(self, gpus: dict[str, int | None]) -> None:
        super().__init__("pynvml")
        self.gpus = gpus
        self.memory = {"NVIDIA T400": (5001, 128)}
        self.refused = ""
        """A call that the driver refuses."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name == self.refused:
            raise NVMLError
        return super().__getattribute__(name)

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return list(self.gpus)[index]

    def nvmlDeviceGetName(self, gpu: str) -> str:  # noqa: N802
        return gpu

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: str) -> int:  # noqa: N802
        millijoules = self.gpus[gpu]
        if millijoules is None:
            raise NVMLError
        return millijoules

    def nvmlDeviceGetMaxClockInfo(self, gpu: str, clock: int) -> int:  # noqa: N802
        assert clock == self.NVML_CLOCK_MEM
        return self.memory[gpu][0]

    def nvmlDeviceGetMemoryBusWidth(self, gpu: str) -> int:  # noqa: N802
        return self.memory[gpu][1]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    module = FakeNvml({"NVIDIA H100 PCIe": 5_000})
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def domain(powercap: Path, folder: str, name: str, microjoules: int) -> Path:
    """A RAPL domain as the kernel shows it; returns its counter."""
    path = powercap / folder
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text(f"{LIMIT}\n")
    counter = path / "energy_uj"
    counter.write_text(f"{microjoules}\n")
    return counter


def processor_meter(powercap: Path) -> EnergyMeter:
    meter = energy_meter(on_gpu=False, powercap=powercap)
    assert meter is not None
    return meter


def used(meter: EnergyMeter, since: float | None) -> float:
    now = meter.joules()
    assert now is not None
    assert since is not None
    return now - since


def test_joules_are_what_the_package_counted_in_between(tmp_path: Path):
    counter = domain(tmp_path, "intel-rapl:0", "package-0", 7_000_000)
    meter = processor_meter(tmp_path)
    before = meter.joules()
    counter.write_text("19500000\n")
    assert used(meter, before) == 12.5
    assert used(meter, before) == 12.5
    assert meter.source == "RAPL: the processor package"


def test_packages_are_added_up_and_their_parts_are_not(tmp_path: Path):
    names = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "package-1",
        "intel-rapl:2": "psys",
        "intel-rapl-mmio:0": "package-0",
    }
    counters = [domain(tmp_path, folder, name, 0) for folder, name in names.items()]
    meter = processor_meter(tmp_path)
    before = meter.joules()
    for power, counter in enumerate(counters):
        counter.write_text(f"{10**power}000000\n")
    assert used(meter, before) == 1 + 1000
    assert meter.source == "RAPL: 2 processor packages"


def test_a_counter_that_starts_over_goes_on_growing(tmp_path: Path):
    counter = domain(tmp_path, "intel-rapl:0", "package-0", LIMIT - 3_000_000)
    meter = processor_meter(tmp_path)
    before = meter.joules()
    for microjoules, joules in [(2_000_000, 5.0), (LIMIT, 3.0 + LIMIT / 1e6), (0, None)]:
        counter.write_text(str(microjoules))
        assert used(meter, before) == pytest.approx(joules or 3.0 + LIMIT / 1e6)
    counter.write_text("1000000")
    assert used(meter, before) == pytest.approx(4.0 + LIMIT / 1e6)


def test_a_folder_without_domains_gives_no_meter(tmp_path: Path):
    assert energy_meter(on_gpu=False, powercap=tmp_path) is None
    assert energy_meter(on_gpu=False, powercap=tmp_path / "none") is None


@pytest.mark.parametrize("file", ["name", "energy_uj", "max_energy_range_uj"])
@pytest.mark.parametrize("damage", ["unreadable", "missing", "garbage"])
def test_a_package_that_cannot_be_read_gives_no_meter(tmp_path: Path, file: str, damage: str):
    path = domain(tmp_path, "intel-rapl:0", "package-0", 0).with_name(file)
    path.unlink()
    if damage == "unreadable":
        # Permissions would not stop tests that run as root; reading a folder fails for all.
        path.mkdir()
    elif damage == "garbage":
        path.write_bytes(b"\xff\xfe")
    assert energy_meter(on_gpu=False, powercap=tmp_path) is None


def test_of_two_packages_the_readable_one_is_counted(tmp_path: Path):
    domain(tmp_path, "intel-rapl:0", "package-0", 0).unlink()
    counter = domain(tmp_path, "intel-rapl:1", "package-1", 0)
    meter = processor_meter(tmp_path)
    before = meter.joules()
    counter.write_text("4000000")
    assert used(meter, before) == 4.0


def test_a_counter_that_vanishes_reads_as_none_and_goes_on_when_back(tmp_path: Path):
    counter = domain(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    other = domain(tmp_path, "intel-rapl:1", "package-1", 0)
    meter = processor_meter(tmp_path)
    before = meter.joules()
    counter.unlink()
    other.write_text("500000")
    assert meter.joules() is None
    counter.write_text("")
    assert meter.joules() is None
    counter.write_text("3000000")
    assert used(meter, before) == 2.5


def test_a_model_on_the_gpu_is_metered_there(tmp_path: Path, nvml: FakeNvml):
    domain(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = energy_meter(on_gpu=True, powercap=tmp_path)
    assert meter is not None
    before = meter.joules()
    nvml.gpus["NVIDIA H100 PCIe"] = 12_500
    assert used(meter, before) == 7.5
    assert meter.source == "NVML: NVIDIA H100 PCIe"


def test_all_gpus_are_added_up(tmp_path: Path, nvml: FakeNvml):
    nvml.gpus.clear()
    nvml.gpus.update(first=1_000, second=2_000)
    meter = energy_meter(on_gpu=True, powercap=tmp_path)
    assert meter is not None
    before = meter.joules()
    nvml.gpus.update(first=2_000, second=5_000)
    assert used(meter, before) == 4.0
    assert meter.source == "NVML: first, second"


def test_a_gpu_that_is_lost_reads_as_none(tmp_path: Path, nvml: FakeNvml):
    meter = energy_meter(on_gpu=True, powercap=tmp_path)
    assert meter is not None
    nvml.gpus["NVIDIA H100 PCIe"] = None
    assert meter.joules() is None


@pytest.mark.parametrize("gpus", [{}, {"old": None}, {"new": 1, "old": None}])
def test_gpus_that_do_not_count_leave_the_packages(
    tmp_path: Path, nvml: FakeNvml, gpus: dict[str, int | None]
):
    nvml.gpus = gpus
    assert energy_meter(on_gpu=True, powercap=tmp_path) is None
    domain(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = energy_meter(on_gpu=True, powercap=tmp_path)
    assert meter is not None
    assert meter.source.startswith("RAPL")


def test_without_a_driver_there_is_no_gpu_meter(tmp_path: Path, nvml: FakeNvml):
    nvml.refused = "nvmlInit"
    assert energy_meter(on_gpu=True, powercap=tmp_path) is None


def test_without_the_nvml_package_there_is_no_gpu_meter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert energy_meter(on_gpu=True, powercap=tmp_path) is None


def test_a_model_on_the_processor_is_not_metered_on_the_gpu(tmp_path: Path, nvml: FakeNvml):
    assert nvml.gpus
    assert energy_meter(on_gpu=False, powercap=tmp_path) is None


@pytest.mark.parametrize("on_gpu", [False, True])
def test_this_machine_has_a_meter_that_reads_or_none(on_gpu: bool):
    meter = energy_meter(on_gpu=on_gpu)
    assert meter is None or (meter.source and meter.joules() is not None)


@pytest.mark.parametrize(("threads", "said"), [(1, "1 thread "), (2, "2 threads "), (3, "3 ")])
def test_a_read_is_measured_and_says_how(threads: int, said: str):
    result = measured_on_cpu(threads)
    assert math.isfinite(result.bytes_per_second)
    assert result.bytes_per_second > 0
    assert result.source.startswith(f"measured: {said}")
    assert "MB" in result.source


def test_every_thread_reads_its_whole_part_in_every_pass(monkeypatch: pytest.MonkeyPatch):
    read: list[tuple[int, int, int]] = []

    def count(words: np.ndarray) -> int:
        read.append((words.ctypes.data, words.nbytes, int(words.min())))
        return 0

    monkeypatch.setattr(bandwidth, "_read", count)
    monkeypatch.setattr(bandwidth, "available_memory", lambda: 200_000_000)
    measured_on_cpu(2)
    parts = set(read)
    assert len(parts) == 2
    assert all(read.count(part) == len(read) / 2 >= bandwidth._FEWEST_PASSES for part in parts)
    assert sum(size for _, size, _ in parts) == 100_000_000
    assert all(least > 0 for _, _, least in parts)


@pytest.mark.parametrize(
    ("free", "cache", "most"),
    [
        (200_000_000, 0, 100_000_000),
        (1 << 62, 0, 160_000_000),
        (1 << 62, 50_000_000, 200_000_000),
        (1 << 62, 1 << 30, 512_000_000),
    ],
)
def test_it_takes_several_times_the_cache_and_at_most_half_of_free_memory(
    monkeypatch: pytest.MonkeyPatch, free: int, cache: int, most: int
):
    monkeypatch.setattr(bandwidth, "available_memory", lambda: free)
    monkeypatch.setattr(bandwidth, "_last_cache_bytes", lambda: cache)
    tracemalloc.start()
    try:
        measured_on_cpu(2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most <= peak < most + 2_000_000


def test_without_memory_beyond_the_caches_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bandwidth, "available_memory", lambda: 100_000_000)
    with pytest.raises(OutOfMemoryError, match="64 MB"):
        measured_on_cpu(2)


@pytest.mark.parametrize(
    ("megahertz", "bits", "gigabytes"),
    [(1215, 5120, 1555), (2619, 5120, 3352), (9751, 384, 936), (0, 5120, None), (1593, 0, None)],
    ids=["A100", "H100", "RTX 3090", "no clock", "no width"],
)
def test_clock_and_width_give_the_bandwidth_on_the_data_sheet(
    nvml: FakeNvml, megahertz: int, bits: int, gigabytes: int | None
):
    """Of the card that is asked for, which need not be the first; zeros are no statement."""
    nvml.gpus = {"NVIDIA T400": None, "NVIDIA H100 PCIe": None}
    nvml.memory["NVIDIA H100 PCIe"] = (megahertz, bits)
    names = ("NVIDIA T400", "NVIDIA H100 PCIe", "AMD Radeon")
    found = [one and round(one.bytes_per_second / 1e9) for one in map(of_gpu, names)]
    assert found == [160, gigabytes, None]


@pytest.mark.parametrize("call", [name for name in vars(FakeNvml) if name.startswith("nvml")])
def test_a_refusal_of_any_call_is_no_statement(nvml: FakeNvml, call: str):
    nvml.memory["NVIDIA H100 PCIe"] = (1593, 5120)
    nvml.refused = call
    is_of_energy = "Energy" in call
    assert (of_gpu("NVIDIA H100 PCIe") is None) is not is_of_energy


def test_without_the_nvml_package_nothing_is_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert of_gpu("NVIDIA H100 PCIe") is None


def test_the_real_nvml_answers_or_says_nothing():
    result = of_gpu("NVIDIA H100 80GB HBM3")
    assert result is None or result.bytes_per_second > 1e9


def test_nvml_is_not_imported_before_it_is_needed():
    code = (
        "import sys, backends.hardware.bandwidth, backends.hardware.nvidia; "
        "sys.exit('pynvml' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
