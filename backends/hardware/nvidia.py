"""NVIDIA cards of this machine, libraries built for them, and the energy of devices."""

# pynvml has no type stubs:
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

LIBRARIES_VARIABLE = "LLAMA_CPP_LIB_PATH"
"""Where the binding looks for its libraries instead of beside itself."""


@dataclass(frozen=True, slots=True)
class NvidiaCards:
    """The cards' names, their architectures as nvcc numbers them ("90"), and their driver.

    cuda: newest version of CUDA that the driver runs, 1000 times the major one.
    """

    names: tuple[str, ...]
    architectures: tuple[str, ...]
    cuda: int


def ask_nvml(question: Callable[[Any, Sequence[Any]], T], *, closes: bool = True) -> T | None:
    """What NVML answers when asked with itself and its cards; None if it is missing or refuses.

    closes: whether it is not asked again later.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        try:
            indices = range(pynvml.nvmlDeviceGetCount())
            cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
            return question(pynvml, cards)
        finally:
            if closes:
                pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None


def nvidia_cards() -> NvidiaCards | None:
    """Cards that the driver lists; None without one, or without a driver."""
    return ask_nvml(_described)


def driver_version() -> str:
    """Of the NVIDIA driver; "" without one."""
    return ask_nvml(lambda nvml, _: str(nvml.nvmlSystemGetDriverVersion())) or ""


def _described(nvml: Any, cards: Sequence[Any]) -> NvidiaCards | None:
    names = tuple(str(nvml.nvmlDeviceGetName(card)) for card in cards)
    capabilities = {nvml.nvmlDeviceGetCudaComputeCapability(card) for card in cards}
    cuda = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
    architectures = tuple(f"{major}{minor}" for major, minor in sorted(capabilities))
    return NvidiaCards(names, architectures, cuda) if names else None


def cuda_libraries() -> Path | None:
    """Where the CUDA build of the installed binding belongs; None without the binding."""
    found = find_spec("llama_cpp")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / f"lib-cuda-{metadata.version('llama-cpp-python')}"


@cache
def use_cuda_libraries() -> str:
    """Have the binding load the CUDA build, if there is one and it can be loaded.

    The binding must not be imported yet. Otherwise the build for the processor is used: without the
    driver, as on a laptop that left its card at home, or where a library is damaged. Returns why;
    "" if the build is used, or there is none.
    """
    folder = cuda_libraries()
    if LIBRARIES_VARIABLE in os.environ or folder is None or not folder.is_dir():
        return ""
    try:
        ctypes.CDLL(str(folder / "libllama.so"))  # with all that it needs
    except OSError as error:
        return str(error)
    os.environ[LIBRARIES_VARIABLE] = str(folder)
    return ""


_POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class EnergyMeter:
    """Counter of energy that only increases.

    source: what is counted and by what, in plain words. joules: reads the counter, None if that
    fails; the difference of two readings is the energy used.
    """

    source: str
    joules: Callable[[], float | None]


def energy_meter(*, on_gpu: bool, powercap: Path = _POWERCAP) -> EnergyMeter | None:
    """Meter of a model's device, None if there is none or only root may read it.

    With on_gpu, that of the NVIDIA GPUs; without it, or if they have none, that of the processor
    packages, which include an integrated GPU.
    """
    return (ask_nvml(_gpu_meter, closes=False) if on_gpu else None) or _package_meter(powercap)


class Energy:
    """Energy between two moments, None without a meter."""

    def __init__(self, meter: EnergyMeter | None) -> None:
        self._meter = meter
        self._started: float | None = None

    def start(self) -> None:
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


def _package_meter(powercap: Path) -> EnergyMeter | None:
    folders = sorted(powercap.glob("intel-rapl:*"))
    packages = [package for folder in folders if (package := _package(folder)) is not None]

    def joules() -> float | None:
        try:
            return sum(package.microjoules() for package in packages) / 1e6
        except (OSError, ValueError):
            return None

    several = f"{len(packages)} processor packages"
    source = f"RAPL: {several if len(packages) > 1 else 'the processor package'}"
    return EnergyMeter(source, joules) if packages else None


def _package(folder: Path) -> _Package | None:
    """Counter of a package; None for other domains, which a package's counter includes."""
    try:
        is_package = (folder / "name").read_text().startswith("package-")
        return _Package(folder) if is_package else None
    except (OSError, ValueError):
        return None


def _number(file: Path) -> int:
    return int(file.read_text())


def _gpu_meter(nvml: Any, cards: Sequence[Any]) -> EnergyMeter | None:
    """Meter of all NVIDIA GPUs; None if any lacks a counter, as a model may run on all."""

    def joules() -> float | None:
        try:
            return sum(map(nvml.nvmlDeviceGetTotalEnergyConsumption, cards)) / 1e3
        except nvml.NVMLError:
            return None

    source = f"NVML: {', '.join(map(nvml.nvmlDeviceGetName, cards))}"
    return EnergyMeter(source, joules) if cards and joules() is not None else None
