"""Facts of this machine for a report, without names of hosts or users."""

import platform
import re
from importlib import metadata

from app.bench.report import Machine
from backends.base import ModelError
from backends.engines.backend_names import LLAMACPP
from backends.engines.engine_overview import Engines, describe_engines
from backends.engines.engine_resources import gpus
from backends.hardware.bandwidth import Bandwidth
from backends.hardware.gpu import Gpu
from backends.hardware.host import physical_cores, processor_name, total_memory

_RELEASE = re.compile(r"\d+(\.\d+)*")
"""The numbers of a system's version: what follows may be a name of its builder's choice."""


def machine(bandwidth: Bandwidth | None, engines: Engines | None = None) -> Machine:
    """This machine, with a bandwidth that was measured, if it was."""
    engines = engines or describe_engines()
    both = (engines.chosen, engines.other)
    return Machine(
        system=_system(),
        processor=processor_name(),
        physical_cores=physical_cores(),
        memory_bytes=total_memory(),
        gpus=llamacpp_gpus(),
        engines={engine.backend: engine.build if engine.works else None for engine in both},
        bandwidth_bytes_per_second=bandwidth.bytes_per_second if bandwidth else None,
        bandwidth_source=bandwidth.source if bandwidth else None,
    )


def llamacpp_gpus() -> tuple[Gpu, ...]:
    """GPUs that llama.cpp puts layers on."""
    try:
        return gpus(LLAMACPP)
    except ModelError:
        return ()  # the engine's own row tells why


def version(package: str) -> str | None:
    """Version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _system() -> str:
    number = _RELEASE.match(platform.mac_ver()[0] or platform.release())
    name = {"Darwin": "macOS"}.get(platform.system(), platform.system())
    return " ".join(filter(None, (name, number and number[0], platform.machine())))
