"""Downloading one file into a partial file, which later attempts resume."""

import os
import re
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from models.hub.client import hub_client
from models.hub.connection import Answer, Connection, CutError
from models.hub.error_mapping import refused
from models.hub.hub_settings import HubSettings
from models.hub.progress import Meter, Progress
from models.hub.repository import Repository, RepositoryFile
from models.hub.repository_cache import opened_part, part_bytes

_WHOLE = 200
_PARTIAL_CONTENT = 206
_RANGE_REFUSED = 416
_SERVER_FAULT = 500
_TICK_SECONDS = 0.1
_RANGE = re.compile(r"bytes ([0-9]{1,19})-[0-9]{1,19}/([0-9]{1,19}|\*)")


class _RestartedError(CutError):
    """A response that does not resume the last one; the received part is lost."""


def receive(
    repository: Repository,
    file: RepositoryFile,
    part: Path,
    connection: Connection,
    settings: HubSettings,
    meter: Meter,
) -> Generator[Progress, None, None]:
    """Append to a partial file until it is complete, resuming lost connections.

    Each attempt receives at most one file's length. Closing the generator keeps the partial file.

    Raises:
        CutError: the last attempt received too little.
        TransportError: of httpx2, likewise.
        DownloadError: the hub refuses.
        ValueError: the response is not the listed file.
        OSError: the partial file cannot be written.
    """
    from httpx2 import TransportError

    attempt, restarts = 1, 0
    while (before := part_bytes(part)) < file.size_bytes:
        try:
            yield from _attempt(repository, file, part, connection, settings, meter)
        except (TransportError, CutError) as cut:
            restarts += isinstance(cut, _RestartedError)
            received = part_bytes(part) - before
            # A byte per connection is no progress: it could go on for ever.
            attempt = 1 if received >= settings.window_bytes else attempt + 1
            if max(attempt, restarts) > settings.attempts:
                raise
            yield from _wait(settings.first_wait * 2 ** max(attempt - 2, 0), meter)


def _attempt(
    repository: Repository,
    file: RepositoryFile,
    part: Path,
    connection: Connection,
    settings: HubSettings,
    meter: Meter,
) -> Iterator[Progress]:
    hub: Any = hub_client()
    start = part_bytes(part)
    url = hub.hf_hub_url(
        repository.name, file.path, revision=repository.commit, endpoint=settings.endpoint
    )
    with connection.get(url, {"Range": f"bytes={start}-"} if start else None) as answer:
        if answer.status >= _SERVER_FAULT:
            raise CutError(f"it answers {answer.status}")
        if start and answer.status in (_WHOLE, _RANGE_REFUSED):
            part.unlink()
            yield meter.add(-start)
            raise _RestartedError("it does not resume the download")
        if answer.status != (_PARTIAL_CONTENT if start else _WHOLE):
            raise refused(answer, repository.name, settings)
        _require_announced(answer.headers, start, file)
        yield from _append(answer, part, file, meter)
    if part_bytes(part) < file.size_bytes:
        raise CutError("the connection ended early")


def _append(answer: Answer, part: Path, file: RepositoryFile, meter: Meter) -> Iterator[Progress]:
    left = file.size_bytes - part_bytes(part)
    with opened_part(part) as out:
        for chunk in answer.chunks():
            if len(chunk) > left:
                out.truncate(0)
                raise ValueError(f"{file.path} is longer than the {file.size_bytes:,} bytes listed")
            left -= len(chunk)
            out.write(chunk)
            out.flush()  # kept even if this process is killed
            yield meter.add(len(chunk))
        os.fsync(out.fileno())


def _require_announced(headers: Mapping[str, str], start: int, file: RepositoryFile) -> None:
    """Check that a response is the rest of the file, before any of it is read.

    Raises:
        ValueError: it is not.
    """
    rest = file.size_bytes - start
    length = headers.get("Content-Length")
    if length is not None and length != str(rest):
        raise ValueError(f"{file.path} comes with {length[:20]} bytes where {rest:,} are listed")
    if start:
        match = _RANGE.fullmatch(headers.get("Content-Range", ""))
        if not match or int(match[1]) != start or match[2] not in ("*", str(file.size_bytes)):
            raise ValueError(f"{file.path} resumes at another position than it stopped at")


def _wait(seconds: float, meter: Meter) -> Iterator[Progress]:
    """Wait, in steps short enough for a prompt stop."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        yield meter.waiting()
        time.sleep(min(left, _TICK_SECONDS))
