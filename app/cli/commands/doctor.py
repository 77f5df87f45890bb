"""`specchat doctor`: what runs here, why, and what would run faster."""

import platform
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from app.ahead.piece_reader import AheadTime
from app.bench.report import report as report_of
from app.cli.output import Json, Output, check_apart, write_json, write_result
from app.cli.report_file import ReportFile, machine, today, version
from app.cli.terminal.process import EXIT_USAGE
from app.engine.upgrade_guard import findings
from app.evaluation.settings_check import Fault, check_settings
from app.learned.speeds import disk_speed, gpu_bandwidth, mlx_bandwidth, processor_bandwidth
from app.loading.checked_loader import split_here
from app.paths import Paths, entries
from app.settings.catalogue import EMBEDDING_MODEL
from app.settings.in_effect import settings_in_effect
from app.tui.wording import seconds
from app.wording import counted
from backends.base import ModelError
from backends.engines.backend_selection import LLAMACPP, MLX, REBUILD_LLAMACPP
from backends.engines.engine_facts import EngineFacts, Engines, describe_engines, wired_limit_advice
from backends.hardware.bandwidth import Bandwidth
from backends.hardware.host import available_memory, physical_cores, this_machine, total_memory
from models.byte_sizes import size_text
from models.stores.available_models import demo_path, installed, readable_names
from models.stores.scan import Installed

_PACKAGES = (
    "specchat",
    "llama-cpp-python",
    "mlx",
    "mlx-lm",
    "numpy",
    "jinja2",
    "huggingface-hub",
    "typer",
)
_OF_APPLE = ("mlx", "mlx-lm")
_OF_DEVICE = (
    "processor", "physical_cores", "memory_bytes", "bandwidth_bytes_per_second", "bandwidth_source",
)  # fmt: skip
_RPC = "can hold layers of a model: --rpc, specchat rpc-server"
_NO_RPC = f'need another build: CMAKE_ARGS="-DGGML_RPC=on" {REBUILD_LLAMACPP}'
_TITLES = {LLAMACPP: "llama.cpp", MLX: "MLX"}


def doctor(json: Json = False, output: Output = None, report: ReportFile = None) -> None:
    """Show the backend and why it was chosen, devices, memory, versions, and wrong settings.

    Exits with 2 if a setting cannot be used.
    """
    check_apart(output, report)
    faults = check_settings(Paths.of_this_user())
    engines = describe_engines()
    bandwidth = _measured(engines.chosen)
    here = machine(bandwidth, engines)
    if report is not None:
        write_json(report, report_of(version("specchat"), today(), here))
    facts = _facts(faults, engines, here)
    wrong = [_row("since a change", found) for found in facts["upgrades"]]
    wrong += [_row("wrong setting", " ".join(str(fault).split())) for fault in faults]
    write_result(facts, [*_lines(facts), *wrong], json, output)
    if faults:
        raise typer.Exit(EXIT_USAGE)


def _facts(faults: Sequence[Fault], engines: Engines, here: dict[str, Any]) -> dict[str, Any]:
    paths, chosen = Paths.of_this_user(), engines.chosen
    models = installed(paths.models)
    largest = _largest(model for model in models if model.path.is_file())
    folder = _largest(model for model in models if model.path.is_dir())
    disk = disk_speed(largest.path, paths) if largest else None
    spent, indexes = AheadTime.kept(paths), list(entries(paths.indexes))
    return {
        "backend": chosen.backend,
        "backend_reason": engines.reason,
        "engine": chosen.build,
        "gpu": chosen.on_gpu,
        "gpus": here["gpus"],
        "gpu_split": _split_of(largest),
        "engines": [asdict(chosen), asdict(engines.other)],
        "advice": engines.advice,
        "memory_advice": _memory_advice(folder, engines),
        "device": {
            **{name: here[name] for name in _OF_DEVICE},
            "available_memory_bytes": available_memory(),
            "disk_bytes_per_second": disk.bytes_per_second if disk else None,
            "disk_source": disk.source if disk else None,
        },
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": sys.version.split()[0],
        "versions": {name: version(name) for name in _PACKAGES},
        "demo_model": str(demo_path()) if demo_path() else None,
        "models": sorted(readable_names(paths.models)),
        "reading_ahead": {"used_seconds": spent.used, "wasted_seconds": spent.wasted},
        "indexes": {
            "chats": sum(one.name.endswith(".sqlite3") for one in indexes),
            "bytes": sum(one.stat().st_size for one in indexes),
        },
        "data": {"folder": str(paths.data), "fault": _fault_of(paths.data)},
        "upgrades": findings(paths),
        "embedding_model": settings_in_effect(paths).values.get(EMBEDDING_MODEL),
        "settings": {
            "file": str(paths.settings),
            "exists": paths.settings.exists(),
            "faults": [asdict(fault) for fault in faults],
        },
    }


def _fault_of(folder: Path) -> str:
    """Why nothing can be written to a folder, which may be missing; empty if it can."""
    try:
        existing = next(one for one in (folder, *folder.parents) if one.exists())
        with tempfile.TemporaryFile(dir=existing, buffering=0) as probe:
            probe.write(b"\0")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _measured(chosen: EngineFacts) -> Bandwidth | None:
    paths, of_device = Paths.of_this_user(), None
    if chosen.on_gpu:
        of_device = mlx_bandwidth(paths, again=True) if chosen.backend == MLX else gpu_bandwidth()
    return of_device or processor_bandwidth(physical_cores(), paths, again=True)


def _largest(models: Iterable[Installed]) -> Installed | None:
    return max(models, key=lambda model: model.size_bytes, default=None)


def _split_of(model: Installed | None) -> dict[str, Any] | None:
    """How a model is divided between GPUs and processor; None without GPUs or a model."""
    split = None
    with suppress(ModelError):
        split = split_here(model.path, LLAMACPP) if model else None
    if model is None or split is None:
        return None
    figures = {"gpu_layers": split.gpu_layers, "layers": split.n_layers}
    return {"model": model.name, **figures, "words": split.words}


def _memory_advice(largest: Installed | None, engines: Engines) -> str | None:
    """Advice for the largest MLX model, if it nearly exceeds the memory that the GPU may use."""
    limit = engines.chosen.working_set or engines.other.working_set
    if largest is None or limit is None:
        return None
    return wired_limit_advice(largest.name, largest.size_bytes, limit, total_memory()) or None


def _rate(device: dict[str, Any], of: str) -> str:
    rate, source = device[f"{of}_bytes_per_second"], device[f"{of}_source"]
    return f"{rate / 1e9:.1f} GB/s ({source})" if rate else ""


def _gpu_memory(gpu: dict[str, Any]) -> str:
    if gpu["is_unified"] or gpu["free_bytes"] is None:
        return gpu["name"]
    free, total = gpu["free_bytes"] / 1e9, gpu["total_bytes"] / 1e9
    return f"{gpu['name']}, {free:.1f} GB available of {total:.1f} GB"


def _reading_ahead(spent: dict[str, float]) -> str:
    """Processor time of reading ahead; empty before there is any."""
    used, wasted = spent["used_seconds"], spent["wasted_seconds"]
    if not used + wasted:
        return ""
    return f"{seconds(used)} of processor time used, {seconds(wasted)} wasted"


def _engine(engine: dict[str, Any]) -> str:
    if engine["problem"]:
        return engine["problem"]
    where = "on the GPU" if engine["on_gpu"] else "on the processor"
    return f"{_build(engine['build'])}, {where}"


def _build(build: str) -> str:
    """An engine's build with the names of what is on, such as CPU: AVX2, FMA."""
    listed: list[str] = []
    for part in build.split(" | "):
        device, colon, feature = part.rpartition(" : ")
        name, _, value = feature.partition(" = ")
        if colon:
            listed.append(f"{device}:")
        if value != "0":
            listed.append(f"{name} {value}," if value not in ("", "1") else f"{name},")
    return " ".join(listed).rstrip(",:")


def _versions(versions: dict[str, str | None]) -> str:
    """Versions of the packages; those of Apple Silicon are not missing elsewhere."""
    unneeded = () if this_machine().is_apple_silicon else _OF_APPLE
    return ", ".join(
        f"{name} {version or 'missing'}"
        for name, version in versions.items()
        if version or name not in unneeded
    )


def _indexes(chats: int, bytes: int) -> str:  # noqa: A002 - as in the JSON
    held = f"{size_text(bytes)} of text of {counted(chats, 'folder')}, to be searched"
    return held if chats else ""


def _unwritable(folder: str, fault: str) -> str:
    return f"{folder} cannot be written, so chats are not saved: {fault}" if fault else ""


def _lines(facts: dict[str, Any]) -> list[str]:
    device, split = facts["device"], facts["gpu_split"]
    disk = _rate(device, "disk")
    rows = {
        "backend": f"{facts['backend']} ({facts['backend_reason']})",
        **{_TITLES[engine["backend"]]: _engine(engine) for engine in facts["engines"]},
        "processor": f"{device['processor']}, {device['physical_cores']} physical cores",
        "memory": f"{device['available_memory_bytes'] / 1e9:.1f} GB available "
        f"of {device['memory_bytes'] / 1e9:.1f} GB",
        "GPU": "; ".join(map(_gpu_memory, facts["gpus"])),
        "other machines": _RPC if any(one["has_rpc"] for one in facts["engines"]) else _NO_RPC,
        "largest model": f"{split['model']}: {split['words']}" if split else "",
        "bandwidth": _rate(device, "bandwidth") or "not measured",
        "disk": f"{disk}, for models larger than memory" if disk else "",
        "system": facts["system"],
        "Python": facts["python"],
        "versions": _versions(facts["versions"]),
        "models": ", ".join(facts["models"]) or "none",
        "reading ahead": _reading_ahead(facts["reading_ahead"]),
        "folders": _indexes(**facts["indexes"]),
        "passage vectors": facts["embedding_model"],
        "settings": facts["settings"]["file"]
        + ("" if facts["settings"]["exists"] else " (missing: defaults apply)"),
        "data folder": _unwritable(**facts["data"]),
        "for more speed": facts["advice"],
        "for more room": facts["memory_advice"],
    }
    return [_row(name, value) for name, value in rows.items() if value]


def _row(name: str, value: str) -> str:
    return f"{name:<15} {value}"
