"""Energy used by this machine, where it has a counter."""

# pynvml has no type stubs:
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from pathlib import Path
from types import ModuleType
from typing import Protocol

_POWERCAP = Path("/sys/class/powercap")


class EnergyMeter(Protocol):
    """Counter of energy that only increases."""

    @property
    def source(self) -> str:
        """What is counted and by what, in plain words, for display."""
        ...

    def joules(self) -> float | None:
        """Reading of the counter, None if it fails; the difference of two is the energy used."""
        ...


def energy_meter(*, on_gpu: bool, powercap: Path = _POWERCAP) -> EnergyMeter | None:
    """Meter of a model's device, None if there is none or only root may read it.

    With on_gpu, that of the NVIDIA GPUs; without it, or if they have none, that of the processor
    packages, which include an integrated GPU.
    """
    return (_gpu_meter() if on_gpu else None) or _package_meter(powercap)


class Energy:
    """Energy between two moments, None without a meter."""

    def __init__(self, meter: EnergyMeter | None) -> None:
        self._meter = meter
        self._started: float | None = None

    def start(self) -> None:
        """Start counting."""
        self._started = self._meter.joules() if self._meter else None

    @property
    def joules(self) -> float | None:
        """Energy used since start, None if unknown."""
        now = self._meter.joules() if self._meter else None
        return None if now is None or self._started is None else now - self._started


class _Package:
    """Counter of one processor package, with the wrap-around of the kernel's counter removed."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError or ValueError if it cannot be read."""
        self._counter = folder / "energy_uj"
        self._limit = _number(folder / "max_energy_range_uj")
        self._last = _number(self._counter)
        self._total = 0

    def microjoules(self) -> int:
        """Energy since construction; raises like the constructor.

        Must be read at least every half hour: the kernel's counter must not wrap twice in between.
        """
        now = _number(self._counter)
        self._total += now - self._last + (self._limit if now < self._last else 0)
        self._last = now
        return self._total


class _PackageMeter:
    def __init__(self, packages: list[_Package]) -> None:
        self._packages = packages
        several = f"{len(packages)} processor packages"
        self.source = f"RAPL: {several if len(packages) > 1 else 'the processor package'}"

    def joules(self) -> float | None:
        try:
            return sum(package.microjoules() for package in self._packages) / 1e6
        except (OSError, ValueError):
            return None


class _GpuMeter:
    def __init__(self, nvml: ModuleType, gpus: list[object]) -> None:
        self._nvml = nvml
        self._gpus = gpus
        self.source = f"NVML: {', '.join(map(nvml.nvmlDeviceGetName, gpus))}"

    def joules(self) -> float | None:
        try:
            return sum(map(self._nvml.nvmlDeviceGetTotalEnergyConsumption, self._gpus)) / 1e3
        except self._nvml.NVMLError:
            return None


def _gpu_meter() -> _GpuMeter | None:
    """Meter of all NVIDIA GPUs; None if any lacks a counter, as a model may run on all."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        indices = range(pynvml.nvmlDeviceGetCount())
        meter = _GpuMeter(pynvml, [pynvml.nvmlDeviceGetHandleByIndex(index) for index in indices])
    except pynvml.NVMLError:
        return None
    return meter if indices and meter.joules() is not None else None


def _package_meter(powercap: Path) -> _PackageMeter | None:
    packages = [
        package
        for folder in sorted(powercap.glob("intel-rapl:*"))
        if (package := _package(folder)) is not None
    ]
    return _PackageMeter(packages) if packages else None


def _package(folder: Path) -> _Package | None:
    """Counter of a package; None for other domains, which a package's counter includes."""
    try:
        is_package = (folder / "name").read_text().startswith("package-")
        return _Package(folder) if is_package else None
    except (OSError, ValueError):
        return None


def _number(file: Path) -> int:
    return int(file.read_text())
