"""Models of Ollama, whose manifests refer to blobs by digest."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from models.json_file import read_object
from models.stores.installed_model import Installed, Origin, files_below

_MODEL = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_REGISTRY, _LIBRARY = "registry.ollama.ai", "library"


def ollama_models(store: Path) -> Iterator[Installed]:
    """Models whose blob is present; damaged manifests are skipped."""
    manifests = store / "manifests"
    for manifest in files_below(manifests):
        layers = read_object(manifest).get("layers")
        for layer in cast("list[object]", layers) if isinstance(layers, list) else []:
            blob = _blob(layer, store)
            if blob is not None:
                name = _name(manifest.relative_to(manifests))
                yield Installed(name, *blob, Origin.OLLAMA)


def _blob(layer: object, store: Path) -> tuple[Path, int] | None:
    """File and size of a layer that is a GGUF model, None for other layers."""
    known = cast("dict[str, Any]", layer) if isinstance(layer, dict) else {}
    digest = _DIGEST.fullmatch(str(known.get("digest")))
    if known.get("mediaType") != _MODEL or not digest:
        return None
    blob = store / "blobs" / f"sha256-{digest[1]}"
    try:
        with blob.open("rb") as file:
            return (blob, blob.stat().st_size) if file.read(4) == b"GGUF" else None
    except OSError:
        return None


def _name(manifest: Path) -> str:
    """Ollama's name of a model: defaults omitted, the tag after a colon."""
    *owners, model, tag = manifest.parts
    usual = [_REGISTRY, _LIBRARY]
    while owners and usual and owners[0] == usual[0]:
        owners.pop(0)
        usual.pop(0)
    return f"{'/'.join([*owners, model])}:{tag}"
