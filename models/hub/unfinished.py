"""Downloads that were stopped and not resumed."""

from collections.abc import Iterator
from pathlib import Path

PART_SUFFIX = ".specchat.incomplete"


def unfinished(cache: Path) -> dict[str, int]:
    """Bytes of unfinished downloads by repository."""
    sizes: dict[str, int] = {}
    for repository, part in _parts(cache):
        sizes[repository] = sizes.get(repository, 0) + part.lstat().st_size
    return sizes


def discard(repository: str, cache: Path) -> None:
    """Delete a repository's unfinished downloads.

    Raises:
        OSError: a file cannot be deleted.
    """
    for owner, part in list(_parts(cache)):
        if owner == repository:
            part.unlink()


def _parts(cache: Path) -> Iterator[tuple[str, Path]]:
    for part in sorted(cache.glob(f"models--*/blobs/*{PART_SUFFIX}")):
        folder = part.parent.parent.name
        yield folder.removeprefix("models--").replace("--", "/", 1), part
