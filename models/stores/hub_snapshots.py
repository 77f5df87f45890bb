"""Models in the cache of huggingface_hub, read without importing it."""

from collections.abc import Iterator
from pathlib import Path

from models.model_names import quantization_of
from models.stores.installed_model import Installed, Origin, gguf_models, mlx_folder_size

_PREFIX = "models--"


def hub_models(cache: Path) -> Iterator[Installed]:
    """GGUF models and MLX folders of all snapshots, the latest snapshots first."""
    for folder in sorted(cache.glob(f"{_PREFIX}*/snapshots")):
        repository = folder.parent.name.removeprefix(_PREFIX).replace("--", "/", 1)
        for snapshot in _latest_first(folder):
            yield from _in_snapshot(snapshot, repository)


def snapshots(cache: Path, repository: str) -> list[Path]:
    """Folders of a repository's snapshots, the latest first."""
    return _latest_first(cache / (_PREFIX + repository.replace("/", "--")) / "snapshots")


def repository_of(snapshot: Path) -> str:
    """Repository of a snapshot's folder, by the names above it; empty for another path."""
    above = snapshot.parent
    if above.name != "snapshots" or not above.parent.name.startswith(_PREFIX):
        return ""
    return above.parent.name.removeprefix(_PREFIX).replace("--", "/", 1)


def repository_file(path: Path, cache: Path) -> tuple[str, str, str] | None:
    """Repository, commit and file name of a path in the cache, None for any other path."""
    if not path.is_relative_to(cache):
        return None
    parts = path.relative_to(cache).parts
    if len(parts) < 4 or not parts[0].startswith(_PREFIX) or parts[1] != "snapshots":
        return None
    repository = parts[0].removeprefix(_PREFIX).replace("--", "/", 1)
    return repository, parts[2], "/".join(parts[3:])


def _in_snapshot(snapshot: Path, repository: str) -> Iterator[Installed]:
    for path, size in gguf_models(snapshot, depth=2):
        label = quantization_of(path.name) or path.name
        yield Installed(f"{repository}:{label}", path, size, Origin.HUB_CACHE)
    size = mlx_folder_size(snapshot, repository)
    if size is not None:
        yield Installed(repository, snapshot, size, Origin.HUB_CACHE)


def _latest_first(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []
