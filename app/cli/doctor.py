"""`specchat doctor`: what runs here, why, and what would run faster."""

import json as json_format
import platform
import sys
from importlib import metadata
from typing import Annotated, Any

import typer

from app.cli import terminal
from app.paths import Paths
from app.performance import processor_bandwidth
from backends.bandwidth import of_gpu
from backends.choice import describe_engine
from backends.device import available_memory, physical_cores, processor_name, total_memory
from models.bundled import demo_path
from models.installed import readable_names

_PACKAGES = ("specchat", "llama-cpp-python", "numpy", "jinja2", "huggingface-hub", "typer")


def doctor(
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the backend and why it was chosen, devices, memory and versions."""
    facts = _facts()
    if json:
        terminal.say(json_format.dumps(facts, ensure_ascii=False, indent=2) + "\n")
        return
    for line in _lines(facts):
        terminal.say(line + "\n")


def _facts() -> dict[str, Any]:
    engine = describe_engine()
    bandwidth = of_gpu() if engine.can_offload else None
    bandwidth = bandwidth or processor_bandwidth(physical_cores(), Paths.of_this_user(), again=True)
    return {
        "schema": 1,
        "backend": engine.backend,
        "backend_reason": engine.reason,
        "engine": engine.build,
        "gpu": engine.can_offload,
        "advice": engine.advice,
        "device": {
            "processor": processor_name(),
            "physical_cores": physical_cores(),
            "memory_bytes": total_memory(),
            "available_memory_bytes": available_memory(),
            "bandwidth_bytes_per_second": bandwidth.bytes_per_second if bandwidth else None,
            "bandwidth_source": bandwidth.source if bandwidth else None,
        },
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": sys.version.split()[0],
        "versions": {name: _version(name) for name in _PACKAGES},
        "demo_model": str(demo_path()) if demo_path() else None,
        "models": sorted(readable_names(Paths.of_this_user().models)),
    }


def _bandwidth(device: dict[str, Any]) -> str:
    rate, source = device["bandwidth_bytes_per_second"], device["bandwidth_source"]
    return f"{rate / 1e9:.1f} GB/s ({source})" if rate else "not measured"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _lines(facts: dict[str, Any]) -> list[str]:
    device = facts["device"]
    rows = {
        "backend": f"{facts['backend']} ({facts['backend_reason']})",
        "engine": facts["engine"],
        "GPU": "used" if facts["gpu"] else "not used",
        "processor": f"{device['processor']}, {device['physical_cores']} physical cores",
        "memory": f"{device['available_memory_bytes'] / 1e9:.1f} GB available "
        f"of {device['memory_bytes'] / 1e9:.1f} GB",
        "bandwidth": _bandwidth(device),
        "system": facts["system"],
        "Python": facts["python"],
        "versions": ", ".join(
            f"{name} {version or 'missing'}" for name, version in facts["versions"].items()
        ),
        "models": ", ".join(facts["models"]) or "none",
        "for more speed": facts["advice"],
    }
    return [f"{name:<15} {value}" for name, value in rows.items()]
