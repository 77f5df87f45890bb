"""What a repository of the hub holds."""

import re
from dataclasses import dataclass
from typing import Any

from models.hub.client import hub_client
from models.hub.faults import told_as_ours
from models.hub.settings import HubSettings

_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file by its path in the repository."""

    path: str
    size_bytes: int
    digest: str
    """SHA-256 of a large file; of a small one git's SHA-1 of it. The cache calls it the etag."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository as it was at one commit."""

    name: str
    commit: str
    files: tuple[RepositoryFile, ...]


def list_repository(name: str, settings: HubSettings) -> Repository:
    """Ask the hub for a repository's files with their sizes and digests: one request.

    Raises:
        DownloadError: there is none, it may not be read, or the hub does not answer as it should.
    """
    with told_as_ours(name, settings):
        hub = hub_client()
        try:
            found: Any = hub.HfApi(endpoint=settings.endpoint).model_info(
                name, files_metadata=True, timeout=settings.timeout
            )
            entries = [one for one in found.siblings or () if _can_be_shown(one)]
            return Repository(name, _digest(found.sha), tuple(map(_file, entries)))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a listing: {error}") from error


def _can_be_shown(entry: Any) -> bool:
    """Whether a file has a size, and a name that does not steer a terminal."""
    return entry.size is not None and str(entry.rfilename).isprintable()


def _file(entry: Any) -> RepositoryFile:
    digest = entry.lfs.sha256 if entry.lfs else entry.blob_id
    return RepositoryFile(entry.rfilename, int(entry.size), _digest(digest))


def _digest(value: object) -> str:
    """A digest as the hub gave it; it becomes the name of a file."""
    if not _DIGEST.fullmatch(str(value)):
        raise ValueError(f"{value!r} is no digest")
    return str(value)
