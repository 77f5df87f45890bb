"""Metadata of a model: its file's if installed, else the catalogue's."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from app.cli.commands.model_facts import facts_of
from app.loading.fitting_layers import split_here
from app.loading.model_list import facts_for_bill, fit_here
from app.paths import Paths
from backends.base import ModelError, UsageError
from backends.engines.backend_names import LLAMACPP
from backends.files.mlx_folder import is_mlx_folder
from models import catalogue
from models.byte_sizes import size_text
from models.catalogue import DrafterKind, Entry, SizeSource
from models.metadata.model_facts import facts_of_entry
from models.metadata.model_files import stored_bytes
from models.reference import HubReference, Reference, entry_of, resolve
from models.stores.available_models import installed
from models.stores.installed_model import Installed

KEYS = (
    "name", "installed", "path", "size_bytes", "size_source", "fit", "gpu_layers", "origin", "get",
    "format", "title", "family", "architecture", "parameters", "active_parameters", "quantization",
    "context", "layers", "vocabulary", "chat_template", "template", "license", "gated", "parts",
    "repository", "file", "mlx", "quantizations", "drafters", "evidence", "checked",
)  # fmt: skip
"""Keys of every model's metadata, in this order; None where unknown."""

_SIZES = {
    SizeSource.HUB: "exact, from the hub",
    SizeSource.PAGE: "rounded, from a page of the hub",
    SizeSource.ESTIMATE: "estimated from parameters and quantization",
}
_EVIDENCE = {
    "files": "its files were seen in stored pages of the hub",
    "name": "its repository was seen in stored pages of the hub",
}
_KINDS = {
    DrafterKind.SAME_VOCABULARY: "",
    DrafterKind.CROSS_VOCABULARY: ", across vocabularies",
    DrafterKind.NEXT_TOKEN_LAYERS: "next-token layers, not run by this version",
}


def model_info(name: str, paths: Paths) -> dict[str, Any]:
    """All metadata of a model, by KEYS; nothing is loaded, and the network is not used.

    name: as `specchat models list` shows it, any other REF, or a path.

    Raises:
        UsageError: there is no such model.
        ModelError: its file is damaged.
    """
    here = _at_path(Path(name)) or _listed(name, paths)
    if not here:
        reference = resolve(name, paths.models)
        if isinstance(reference, HubReference):
            return dict.fromkeys(KEYS) | _of_catalogue(reference)
        here = _listed(str(reference.path), paths) or _at_path(reference.path)
    return dict.fromkeys(KEYS) | here | _of_file(here["name"], Path(here["path"]))


def as_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The known metadata as rows of a label and a value."""
    shown = facts | {"size_source": None}
    if facts["size_bytes"] is not None and facts["size_source"] in _SIZES:
        shown["size_bytes"] = f"{size_text(facts['size_bytes'])} ({_SIZES[facts['size_source']]})"
    if facts["active_parameters"] == facts["parameters"]:
        shown["active_parameters"] = None
    if facts["drafters"] is not None:
        shown["drafters"] = [_drafter_text(drafter) for drafter in facts["drafters"]]
    if facts["evidence"] is not None:
        shown["evidence"] = _EVIDENCE[facts["evidence"]]
    if facts["gpu_layers"] is not None:
        shown["gpu_layers"] = facts["gpu_layers"]["words"]
    for key, value in shown.items():
        if value is not None:
            yield key.replace("_", " "), _shown(value)


def _shown(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list():
            return ", ".join(cast("list[str]", value)) or "none"
        case _:
            return str(value)


def _drafter_text(drafter: dict[str, Any]) -> str:
    return f"{drafter['alias']} ({drafter['model'] or ''}{_KINDS[drafter['kind']]})"


def _of_file(name: str, path: Path) -> dict[str, Any]:
    """Metadata of a file, and the catalogue's of models like it."""
    facts = facts_of(path)
    entry = entry_of(Reference(name, path))
    more: dict[str, Any] = {
        "installed": True,
        "size_source": "file",
        "fit": fit_here(facts_for_bill(path), path),
        "gpu_layers": _gpu_layers(path),
        "drafters": _drafters(entry),
    }
    if entry is not None:
        more |= {"family": entry.family, "template": entry.template or None}
        facts["license"] = facts.get("license") or entry.licence
    return facts | more


def _gpu_layers(path: Path) -> dict[str, Any] | None:
    """Layers of a model that fit on GPUs, as --gpu-layers counts them; None without GPUs."""
    if path.is_dir():
        return None
    try:
        split = split_here(path, LLAMACPP)
    except ModelError:
        return None  # the engine is not installed
    return {"count": split.gpu_layers, "words": split.words} if split else None


def _of_catalogue(reference: HubReference) -> dict[str, Any]:
    """Metadata of a model of the catalogue that is not installed."""
    entry, quantization = reference.entry, reference.quantization
    if entry is None or quantization is None:
        raise UsageError(
            f"{reference.name} is neither on this machine nor in the catalogue",
            "the hub is contacted only to download a model",
            f"To download it: specchat models pull {reference.name}",
        )
    size = entry.size(quantization)
    return {
        "name": reference.name,
        "installed": False,
        "size_bytes": size.bytes if size else None,
        "size_source": size.source.value if size else None,
        "fit": fit_here(facts_of_entry(entry, quantization)),
        "get": f"specchat models pull {reference.name}",
        "format": "GGUF",
        "family": entry.family,
        "parameters": entry.parameters,
        "active_parameters": entry.active,
        "quantization": quantization,
        "context": entry.context,
        "template": entry.template or None,
        "license": entry.licence,
        "gated": entry.is_gated,
        "repository": entry.repository,
        "file": entry.file(quantization),
        "mlx": entry.mlx or None,
        "quantizations": list(entry.quantizations),
        "drafters": _drafters(entry),
        "evidence": entry.evidence or None,
        "checked": entry.checked or None,
    }


def _drafters(entry: Entry | None) -> list[dict[str, Any]]:
    return [
        {"alias": drafter.alias, "kind": drafter.kind.value, "model": drafter.model or None}
        for drafter in catalogue.drafters(entry)
    ]


def _at_path(path: Path) -> dict[str, Any]:
    """A file or an MLX folder by its path; {} if there is none."""
    if not (path.is_file() or is_mlx_folder(path)):
        return {}
    return {"name": path.resolve().name, "path": str(path), "size_bytes": stored_bytes(path)}


def _listed(name: str, paths: Paths) -> dict[str, Any]:
    """An installed model by its name or path; {} if there is none."""
    model = named(name, installed(paths.models))
    return as_json(model) if model else {}


def named(name: str, listed: Iterable[Installed]) -> Installed | None:
    """The installed model of a name or path."""
    matches = (m for m in listed if name.lower() == m.name.lower() or name == str(m.path))
    return next(matches, None)


def as_json(model: Installed) -> dict[str, Any]:
    """An installed model as a JSON object."""
    return {**asdict(model), "path": str(model.path), "origin": model.origin.value}
