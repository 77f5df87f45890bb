"""Record of the files specchat downloaded into the shared cache, which only it may remove."""

from pathlib import Path
from threading import Lock
from typing import Any, cast

from models.json_file import read_object, write_object

_WRITING = Lock()


def record(receipts: Path, repository: str, commit: str, files: list[str]) -> None:
    """Record files of a repository; if that fails, they count as foreign."""
    with _WRITING:
        known = read_object(receipts)
        ours = set(_files(known, repository, commit)) | set(files)
        known[_key(repository, commit)] = sorted(ours)
        write_object(receipts, known)


def is_ours(receipts: Path, repository: str, commit: str, file: str) -> bool:
    """Whether specchat downloaded a file."""
    return file in _files(read_object(receipts), repository, commit)


def _files(known: dict[str, Any], repository: str, commit: str) -> list[str]:
    files = known.get(_key(repository, commit))
    return [str(file) for file in cast("list[object]", files)] if isinstance(files, list) else []


def _key(repository: str, commit: str) -> str:
    return f"{repository}@{commit}"
