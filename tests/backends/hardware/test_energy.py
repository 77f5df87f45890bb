"""Energy meters, on folders like the kernel's and on a stand-in for NVML."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from backends.hardware.energy import EnergyMeter, energy_meter

LIMIT = 262_143_328_850


class NVMLError(Exception):
    pass


class FakeNvml(ModuleType):
    """NVML of a machine with some GPUs, by name and millijoules; None does not count."""

    NVMLError = NVMLError

    def __init__(self, gpus: dict[str, int | None]) -> None:
        super().__init__("pynvml")
        self.gpus = gpus
        self.has_driver = True

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.has_driver:
            raise NVMLError

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
    nvml.has_driver = False
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
