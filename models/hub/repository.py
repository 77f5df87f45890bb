"""Listing a repository of the hub, whose answer is untrusted."""

import json
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, cast

from models.hub.connection import Connection
from models.hub.error_mapping import refused
from models.hub.hub_settings import HubSettings
from models.hub.progress import Phase, Progress
from models.hub.safe_paths import is_safe

_LONGEST_LISTING = 8 << 20
"""Bytes; about 20,000 files."""
_MOST_FILES = 20_000
_MOST_VALUES = 500_000
"""Most JSON values: each takes about 70 bytes of memory, even if it is 2 bytes long."""
_LARGEST_FILE = 2**63 - 1
_SHA1 = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """File of a repository."""

    path: str
    size_bytes: int
    digest: str
    """SHA-256 of a large file, git's SHA-1 of a small one; the cache calls it the etag."""


@dataclass(frozen=True, slots=True)
class Repository:
    """Repository at one commit."""

    name: str
    commit: str
    files: tuple[RepositoryFile, ...]


def list_repository(
    name: str, connection: Connection, settings: HubSettings
) -> Generator[Progress, None, Repository]:
    """List a repository's files with sizes and digests, in one request.

    Raises:
        DownloadError: the hub refuses.
        ValueError: the answer is no listing, is inconsistent, or is too long.
    """
    from huggingface_hub.utils import validate_repo_id

    validate_repo_id(name)
    content = bytearray()
    with connection.get(f"{settings.endpoint}/api/models/{name}?blobs=true") as answer:
        if answer.status != 200:
            raise refused(answer, name, settings)
        for chunk in answer.chunks():
            content += chunk
            if len(content) > _LONGEST_LISTING:
                raise ValueError(f"the listing is longer than {_LONGEST_LISTING:,} bytes")
            yield Progress(Phase.ASKING)
    return parse_listing(name, bytes(content))


def parse_listing(name: str, content: bytes) -> Repository:
    """Parse a listing, without files that have no size or an unsafe path.

    Raises:
        ValueError: it is no listing, or is inconsistent.
    """
    if sum(map(content.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise ValueError(f"the listing holds more than {_MOST_VALUES:,} values")
    try:
        listing = _object(json.loads(content), "listing")
    except RecursionError as error:
        raise ValueError("the listing is nested too deep") from error
    commit = _matching(_SHA1, listing.get("sha"), "commit")
    entries: object = listing.get("siblings") or []
    if not isinstance(entries, list):
        raise ValueError("the listing names no files")
    listed = cast("list[object]", entries)
    if len(listed) > _MOST_FILES:
        raise ValueError(f"the listing names more than {_MOST_FILES:,} files")
    files = tuple(file for file in map(_file, listed) if file)
    _require_consistent(files)
    return Repository(name, commit, files)


def _file(value: object) -> RepositoryFile | None:
    entry = _object(value, "file")
    path, size, lfs = entry.get("rfilename"), entry.get("size"), entry.get("lfs")
    if not isinstance(path, str):
        raise ValueError("a file without a name is listed")
    if size is None or not is_safe(path):
        return None
    if type(size) is not int or not 0 <= size <= _LARGEST_FILE:
        raise ValueError(f"{path} is listed with an invalid size")
    if lfs is None:
        return RepositoryFile(path, size, _matching(_SHA1, entry.get("blobId"), path))
    large = _object(lfs, path)
    if large.get("size", size) != size:
        raise ValueError(f"{path} is listed with two sizes")
    return RepositoryFile(path, size, _matching(_SHA256, large.get("sha256"), path))


def _require_consistent(files: tuple[RepositoryFile, ...]) -> None:
    paths: set[str] = set()
    sizes: dict[str, int] = {}
    for file in files:
        if file.path in paths:
            raise ValueError(f"{file.path} is listed twice")
        paths.add(file.path)
        if sizes.setdefault(file.digest, file.size_bytes) != file.size_bytes:
            raise ValueError(f"{file.path} is listed with the digest of a file of another size")


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what}: not an object")
    return cast("dict[str, Any]", value)


def _matching(form: re.Pattern[str], value: object, what: str) -> str:
    """Digest in the expected form; it becomes part of a file name."""
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ValueError(f"{what}: its digest is invalid")
    return value
