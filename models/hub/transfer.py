"""One file from the hub into a part that the next attempt continues."""

import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from models.hub.client import hub_client
from models.hub.progress import Meter, Progress
from models.hub.repository import Repository, RepositoryFile
from models.hub.settings import HubSettings

_PARTIAL_CONTENT = 206
_RANGE_REFUSED = 416
_SERVER_FAULT = 500
_TICK_SECONDS = 0.1


class _CutError(Exception):
    """A connection that ended before the file did."""


def receive(
    repository: Repository, file: RepositoryFile, part: Path, settings: HubSettings, meter: Meter
) -> Generator[Progress, None, None]:
    """Append to a part until it is as long as the file; cut connections are taken up again.

    Closing the generator keeps the part.

    Raises:
        TransportError: of httpx2, when the last attempt brought nothing.
        HfHubHTTPError: of huggingface_hub, when the hub refuses.
        OSError: the part cannot be written.
    """
    from httpx2 import TransportError

    attempt = 1
    while (before := _size(part)) < file.size_bytes:
        try:
            yield from _attempt(repository, file, part, settings, meter)
        except (TransportError, _CutError) as cut:
            attempt = 1 if _size(part) > before else attempt + 1
            if attempt > settings.attempts:
                raise cut if isinstance(cut, TransportError) else TransportError(str(cut)) from cut
            yield from _wait(settings.first_wait * 2 ** max(attempt - 2, 0), meter)


def _attempt(
    repository: Repository, file: RepositoryFile, part: Path, settings: HubSettings, meter: Meter
) -> Iterator[Progress]:
    hub: Any = hub_client()
    start = _size(part)
    url = hub.hf_hub_url(
        repository.name, file.path, revision=repository.commit, endpoint=settings.endpoint
    )
    # Compressed content would not count the bytes that the range means.
    headers = {**hub.utils.build_hf_headers(), "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with hub.get_session().stream("GET", url, headers=headers, timeout=settings.timeout) as answer:
        if answer.status_code >= _SERVER_FAULT:
            raise _CutError(f"the hub answers {answer.status_code}")
        if answer.status_code != _RANGE_REFUSED:
            hub.utils.hf_raise_for_status(answer)
        if start and answer.status_code != _PARTIAL_CONTENT:
            part.unlink()
            yield meter.add(-start)
            if answer.status_code == _RANGE_REFUSED:
                return
        with part.open("ab") as out:
            for chunk in answer.iter_bytes():
                out.write(chunk)
                out.flush()  # what came stays, however this process ends
                yield meter.add(len(chunk))
    if _size(part) < file.size_bytes:
        raise _CutError("the connection ended early")


def _wait(seconds: float, meter: Meter) -> Iterator[Progress]:
    """Let some time pass, in pieces short enough for a stop to come through."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        yield meter.waiting()
        time.sleep(min(left, _TICK_SECONDS))


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
