"""A report that can be sent: facts of this machine, and `--report FILE` of `bench` and `doctor`."""

import datetime
import platform
import re
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.output import writable
from backends.base import ModelError
from backends.engines.backend_selection import LLAMACPP
from backends.engines.engine_facts import Engines, describe_engines, gpus
from backends.hardware.bandwidth import Bandwidth
from backends.hardware.host import Gpu, physical_cores, processor_name, total_memory

_RELEASE = re.compile(r"\d+(\.\d+)*")
"""The numbers of a system's version: what follows may be a name of its builder's choice."""


def machine(bandwidth: Bandwidth | None, engines: Engines | None = None) -> dict[str, Any]:
    """This machine, with a bandwidth that was measured, if it was."""
    engines = engines or describe_engines()
    both = (engines.chosen, engines.other)
    return {
        "system": _system(),
        "processor": processor_name(),
        "physical_cores": physical_cores(),
        "memory_bytes": total_memory(),
        "gpus": [asdict(gpu) for gpu in _llamacpp_gpus()],
        "engines": {engine.backend: engine.build if engine.works else None for engine in both},
        "bandwidth_bytes_per_second": bandwidth.bytes_per_second if bandwidth else None,
        "bandwidth_source": bandwidth.source if bandwidth else None,
    }


def _llamacpp_gpus() -> tuple[Gpu, ...]:
    try:
        return gpus(LLAMACPP)
    except ModelError:
        return ()  # the engine's own row tells why


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _system() -> str:
    number = _RELEASE.match(platform.mac_ver()[0] or platform.release())
    name = {"Darwin": "macOS"}.get(platform.system(), platform.system())
    return " ".join(filter(None, (name, number and number[0], platform.machine())))


ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        callback=writable,
        help="Write figures to send: no texts, no names of files, users or hosts.",
    ),
]


def today() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
