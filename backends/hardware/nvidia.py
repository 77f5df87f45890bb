"""NVIDIA cards of this machine, and the libraries of llama.cpp that were built for them."""

# pynvml has no type stubs:
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
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


def use_cuda_libraries() -> None:
    """Have the binding load the CUDA build, if there is one and the driver is there to run it.

    It must not be imported yet. Without the driver the build could not be loaded at all: the one
    for the processor is used then, as on a laptop that left its card at home.
    """
    folder = cuda_libraries()
    if LIBRARIES_VARIABLE in os.environ or folder is None or not folder.is_dir():
        return
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        os.environ[LIBRARIES_VARIABLE] = str(folder)
