"""Metadata of a model: its file's if installed, else the catalogue's."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from app.history.store import open_history
from app.learned.registered import REMOVED_CHAT, registered
from app.loading.checked_loader import split_here
from app.loading.model_list import facts_for_bill, fit_here
from app.paths import Paths
from app.values import mapping
from backends.base import ModelError, UsageError
from backends.engines.backend_selection import LLAMACPP
from backends.engines.model_loading import head_refusal
from backends.files.gguf_header import parts, read_header
from backends.files.mlx_folder import WEIGHT_FILES, StoredTensor, is_mlx_folder, stored_tensors
from models import catalogue
from models.bounded_files import read_object
from models.byte_sizes import size_text
from models.catalogue import DrafterKind, Entry, SizeSource
from models.metadata.identity import projector_beside, stored_bytes
from models.metadata.memory_bill import facts_of_entry
from models.metadata.trained_drafters import expected_backend, found_for
from models.names import quantization_of
from models.reference import HubReference, Reference, entry_of, resolve
from models.stores.available_models import installed
from models.stores.scan import Installed


def facts_of(path: Path) -> dict[str, Any]:
    """Metadata of a GGUF file or an MLX folder; None where it is absent.

    Raises:
        ModelError: the file is missing or damaged.
    """
    return _of_folder(path) if path.is_dir() else _of_gguf(path)


def _of_gguf(path: Path) -> dict[str, Any]:
    headers = [read_header(part) for part in parts(path)]
    first = headers[0]
    return {
        "format": "GGUF",
        "title": first.metadata.get("general.name"),
        "architecture": first.architecture or None,
        "parameters": sum(tensor.parameters for header in headers for tensor in header.tensors),
        "quantization": quantization_of(path.name),
        "context": first.integer("context_length") or None,
        "layers": first.integer("block_count") or None,
        "vocabulary": first.array_lengths.get("tokenizer.ggml.tokens"),
        "chat_template": "tokenizer.chat_template" in first.metadata,
        "projector": (found := projector_beside(path)) and found.name,
        "license": first.metadata.get("general.license"),
        "parts": len(headers),
    }


def _of_folder(path: Path) -> dict[str, Any]:
    config = read_object(path / "config.json")
    bits = mapping(config.get("quantization")).get("bits")
    tensors: dict[str, StoredTensor] = {}
    for file in path.glob(WEIGHT_FILES):
        tensors |= stored_tensors(file)
    template = read_object(path / "tokenizer_config.json").get("chat_template")
    return {
        "format": "MLX",
        "architecture": config.get("model_type"),
        "parameters": None if bits else _parameters(tensors),
        "quantization": f"{bits}-bit" if bits else _usual_type(tensors),
        "context": config.get("max_position_embeddings"),
        "layers": config.get("num_hidden_layers"),
        "vocabulary": config.get("vocab_size"),
        "chat_template": bool(template) or (path / "chat_template.jinja").is_file(),
    }


_TYPES = {"F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2)}
"""Name and bytes per weight, by data type."""


def _usual_type(tensors: Mapping[str, StoredTensor]) -> str | None:
    stored = Counter[str]()
    for tensor in tensors.values():
        stored[tensor.dtype] += tensor.bytes
    return _TYPES.get(stored.most_common(1)[0][0], (None, 0))[0] if stored else None


def _parameters(tensors: Mapping[str, StoredTensor]) -> int | None:
    if not all(tensor.dtype in _TYPES for tensor in tensors.values()):
        return None
    return sum(tensor.bytes // _TYPES[tensor.dtype][1] for tensor in tensors.values()) or None


KEYS = (
    "name", "installed", "path", "size_bytes", "size_source", "fit", "gpu_layers", "origin", "get",
    "format", "title", "family", "architecture", "parameters", "active_parameters", "quantization",
    "context", "layers", "vocabulary", "chat_template", "projector", "template", "license", "gated",
    "parts", "repository", "file", "mlx", "quantizations", "good_at", "drafters",
    "trained_drafters", "evidence", "checked",
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
    path = Path(here["path"])
    facts = _of_installed(here["name"], path)
    facts["trained_drafters"] += own_drafters(path, paths)
    return dict.fromkeys(KEYS) | here | facts


def as_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    shown = facts | {"size_source": None}
    if facts["size_bytes"] is not None and facts["size_source"] in _SIZES:
        shown["size_bytes"] = f"{size_text(facts['size_bytes'])} ({_SIZES[facts['size_source']]})"
    if facts["active_parameters"] == facts["parameters"]:
        shown["active_parameters"] = None
    if facts["drafters"] is not None:
        at_hand = facts["trained_drafters"] or ()
        here = [drafter for drafter in at_hand if not drafter["misfit"]]
        shown["drafters"] = [_found_text(drafter) for drafter in here]
        words = {drafter["alias"] for drafter in here}
        named = [one for one in facts["drafters"] if one["alias"] not in words]
        is_folder = facts["format"] == "MLX"
        # MLX reads no heads in files.
        used = (one for one in named if one["mlx"] or one["model"] or not is_folder)
        shown["drafters"] += [_drafter_text(drafter, is_folder) for drafter in used]
        shown["trained_drafters"] = None
        useless = [_found_text(drafter) for drafter in at_hand if drafter["misfit"]]
        shown["cannot_draft"] = "; ".join(useless) or None
        shown["published"] = _published(facts["drafters"]) or None
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


def _drafter_text(drafter: dict[str, Any], is_folder: bool) -> str:
    """A drafter of the catalogue; is_folder: whether it is to draft for an MLX folder."""
    kind = DrafterKind(drafter["kind"])
    place, words = drafter["model"] or drafter["file"] or drafter["repository"], kind.words
    if is_folder and drafter["mlx"]:
        place = drafter["mlx"]
    elif not place and kind is not DrafterKind.NEXT_TOKEN_LAYERS:
        place, words = drafter["mlx"], f"{words} for MLX"
    return f"{drafter['alias']} ({', '.join(filter(None, [place, words]))})"


def _found_text(drafter: dict[str, Any]) -> str:
    file = Path(drafter["path"]).name
    told = ": ".join(filter(None, (drafter["misfit"], drafter.get("note"))))
    why = f": {told}" if told else ""
    return f"{drafter['alias']} ({drafter['kind']} in {file}{why})"


def _published(drafters: list[dict[str, Any]]) -> str:
    """What others measured, relative to plain decoding."""
    told = (each for each in drafters if each["published"])
    return "; ".join(f"{each['alias']} {each['published']}" for each in told)


def _of_installed(name: str, path: Path) -> dict[str, Any]:
    """Metadata of a file, and the catalogue's of models like it."""
    facts = facts_of(path)
    entry = entry_of(Reference(name, path))
    more: dict[str, Any] = {
        "installed": True,
        "size_source": "file",
        "fit": fit_here(facts_for_bill(path), path),
        "gpu_layers": _gpu_layers(path),
        "good_at": [*entry.good_at] if entry else None,
        "drafters": _drafters(entry),
        "trained_drafters": _trained(path),
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
        "good_at": [*entry.good_at],
        "drafters": _drafters(entry),
        "evidence": entry.evidence or None,
        "checked": entry.checked or None,
    }


def _drafters(entry: Entry | None) -> list[dict[str, Any]]:
    described = (asdict(drafter) for drafter in catalogue.drafters(entry))
    return [
        {name.replace("licence", "license"): fact or None for name, fact in facts.items()}
        for facts in described
    ]


def _trained(path: Path) -> list[dict[str, Any]]:
    """Trained drafters that a model brings, and those beside it."""
    backend = expected_backend(path)
    architecture = read_header(parts(path)[0]).architecture if path.is_file() else ""
    return [
        {
            "alias": each.drafter.kind.word,
            "kind": each.drafter.kind,
            "path": str(each.path),
            "misfit": each.misfit or head_refusal(each.drafter, architecture, backend) or None,
        }
        for each in found_for(path)
    ]


def own_drafters(path: Path, paths: Paths) -> list[dict[str, Any]]:
    """Drafters that were trained for a model, with what keeps one from being used."""
    entries = [each for each in registered(paths) if each.model == path.name]
    marks, backend = list[str](), expected_backend(path)
    if any(each.taught_by for each in entries) and paths.history.exists():
        with closing(open_history(paths)) as history:
            marks = history.marks()
    return [
        {
            "alias": each.name,
            "kind": f"{each.method}, {each.words}",
            "path": str(each.path),
            "misfit": each.refusal(path, backend) or None,
            "note": REMOVED_CHAT if each.missing(marks) else None,
        }
        for each in entries
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
    matches = (m for m in listed if name.lower() == m.name.lower() or name == str(m.path))
    return next(matches, None)


def as_json(model: Installed) -> dict[str, Any]:
    return {**asdict(model), "path": str(model.path), "origin": model.origin.value}
