"""The energy this machine uses, where it counts it."""

from pathlib import Path
from types import ModuleType
from typing import Protocol

_POWERCAP = Path("/sys/class/powercap")


class EnergyMeter(Protocol):
    """A counter that only grows."""

    @property
    def source(self) -> str:
        """What is counted and by whom, in plain words, to be shown."""
        ...

    def joules(self) -> float | None:
        """The difference of two readings is the energy used between; None if it cannot be read."""
        ...


def energy_meter(*, on_gpu: bool, powercap: Path = _POWERCAP) -> EnergyMeter | None:
    """The meter of what a model runs on, None where nothing counts or only root may read it.

    With on_gpu it is the NVIDIA GPUs' own; where they have none, and without on_gpu, it is that
    of the processor packages, which a GPU inside the processor is part of.
    """
    return (_gpu_meter() if on_gpu else None) or _package_meter(powercap)


class Energy:
    """The energy between two moments; of nothing where there is no meter."""

    def __init__(self, meter: EnergyMeter | None) -> None:
        self._meter = meter
        self._started: float | None = None

    def start(self) -> None:
        """Count from now."""
        self._started = self._meter.joules() if self._meter else None

    @property
    def joules(self) -> float | None:
        """Used since the start, None if that cannot be told."""
        now = self._meter.joules() if self._meter else None
        return None if now is None or self._started is None else now - self._started


class _Package:
    """One processor package's counter, without the falls back to zero of what the kernel shows."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError or ValueError where it cannot be read."""
        self._counter = folder / "energy_uj"
        self._limit = _number(folder / "max_energy_range_uj")
        self._last = _number(self._counter)
        self._total = 0

    def microjoules(self) -> int:
        """Energy since the start; raises like the constructor.

        To be read at least every half hour, as the kernel's counter must not pass its limit twice.
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
    """None also where only some GPUs count: a model may run on all of them."""
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
    """None for a domain that is no package, as its package's counter holds it already."""
    try:
        is_package = (folder / "name").read_text().startswith("package-")
        return _Package(folder) if is_package else None
    except (OSError, ValueError):
        return None


def _number(file: Path) -> int:
    return int(file.read_text())
