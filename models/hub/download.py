"""Downloading a model from the hub into the shared cache, step by step, on a thread of its own."""

import hashlib
import os
import re
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from backends.base import DownloadError, DownloadStoppedError, SpecchatError
from backends.base.safe_files import put_in_place
from models.byte_sizes import size_text
from models.hub import repository_cache as receipts
from models.hub.connection import (
    Answer,
    Connection,
    CutError,
    free_bytes,
    hub_client,
    mapped_errors,
    refused,
)
from models.hub.hub_settings import HubSettings
from models.hub.progress import Meter, Phase, Progress
from models.hub.repository import (
    Repository,
    RepositoryFile,
    files_wanted,
    list_repository,
    require_distinct,
)
from models.hub.repository_cache import RepositoryCache, opened_part, part_bytes, real_folder

_CHUNK = 8 << 20
_SHA256_LENGTH = 64


def check(path: Path, expected: RepositoryFile) -> Iterator[int]:
    """Verify a file, yielding the number of bytes read at each step.

    Raises:
        ValueError: its content has another digest.
    """
    if len(expected.digest) == _SHA256_LENGTH:
        digest = hashlib.sha256()
    else:  # git's digest of a small file: SHA-1 of its length and content
        digest = hashlib.sha1(f"blob {expected.size_bytes}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            yield len(chunk)
    if digest.hexdigest() != expected.digest:
        raise ValueError(f"its digest is {digest.hexdigest()[:12]}…, not {expected.digest[:12]}…")


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
    """Check that a response is the rest of the file, before any of it is read."""
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


_LOCK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """Repository, organization/name, and the wanted quantization or file name, or None."""

    repository: str
    wanted: str | None = None


@dataclass(frozen=True, slots=True)
class Downloaded:
    """Model that is complete in the cache."""

    repository: str
    commit: str
    path: Path
    """Path to load: a GGUF file, its first part, or an MLX folder."""
    size_bytes: int


def download(
    request: DownloadRequest, settings: HubSettings
) -> Generator[Progress, None, Downloaded]:
    """Download a model into the cache, except files that are there already.

    Closing the generator stops it; the next download of the same files resumes it.

    Raises:
        DownloadError: the network, the hub, the disk, or a file that is not what the hub promised.
        UsageError: the repository has no such model.
    """
    yield Progress(Phase.ASKING)
    with mapped_errors(request.repository, settings), Connection(settings) as connection:
        repository = yield from list_repository(request.repository, connection, settings)
        files = files_wanted(repository, request.wanted)
        _require_downloadable(files, repository)
        with _locked(repository, files[0], settings):
            return (yield from _downloaded(repository, files, connection, settings))


def _downloaded(
    repository: Repository,
    files: tuple[RepositoryFile, ...],
    connection: Connection,
    settings: HubSettings,
) -> Generator[Progress, None, Downloaded]:
    cache = RepositoryCache.of(repository, settings, files[0].digest)
    by_digest = {file.digest: file for file in files}
    contents = yield from _already_there(by_digest.values(), cache)
    missing = [file for digest, file in by_digest.items() if digest not in contents]
    _require_room(missing, cache, settings)
    yield from _received(repository, missing, cache, connection, settings)
    yield from _checked(missing, cache, settings)
    for file in missing:
        contents[file.digest] = put_in_place(cache.part(file), cache.home(file))
    for file in files:
        cache.enter(file, contents[file.digest])
    cache.update_main()
    downloaded = {file.digest for file in missing}
    ours = [file.path for file in files if file.digest in downloaded]
    receipts.record(settings.receipts, repository.name, repository.commit, ours)
    size = sum(file.size_bytes for file in files)
    is_file = files[0].path.lower().endswith(".gguf")
    path = cache.entry(files[0]) if is_file else cache.snapshot
    return Downloaded(repository.name, repository.commit, path, size)


def _require_downloadable(files: tuple[RepositoryFile, ...], repository: Repository) -> None:
    require_distinct((file.path for file in files), (file.path for file in repository.files))
    for file in files:
        if not file.size_bytes:
            raise ValueError(f"{file.path} is listed as empty")


def _already_there(
    files: Iterable[RepositoryFile], cache: RepositoryCache
) -> Generator[Progress, None, dict[str, Path]]:
    """Paths of contents in the cache, by digest; each file is verified, whatever its name."""
    candidates = {file: path for file in files if (path := cache.candidate(file))}
    meter = Meter(Phase.CHECKING, _total(candidates))
    contents: dict[str, Path] = {}
    for file, path in candidates.items():
        try:
            for count in check(path, file):
                yield meter.add(count)
        except (OSError, ValueError):
            continue  # it is downloaded again and replaces the damaged one
        contents[file.digest] = path
    return contents


def _received(
    repository: Repository,
    missing: list[RepositoryFile],
    cache: RepositoryCache,
    connection: Connection,
    settings: HubSettings,
) -> Iterator[Progress]:
    resumed = sum(part_bytes(cache.part(file)) for file in missing)
    meter = Meter(Phase.RECEIVING, _total(missing), resumed)
    for file in missing:
        yield from receive(repository, file, cache.part(file), connection, settings, meter)


def _checked(
    missing: list[RepositoryFile], cache: RepositoryCache, settings: HubSettings
) -> Iterator[Progress]:
    meter = Meter(Phase.CHECKING, _total(missing))
    for file in missing:
        part = cache.part(file)
        try:
            for count in check(part, file):
                yield meter.add(count)
        except ValueError as error:
            part.unlink()
            raise DownloadError(
                f"{file.path} arrived damaged and was deleted",
                str(error),
                f"Download it again. If that happens again, {settings.endpoint} has a wrong file.",
            ) from error


def _total(files: Iterable[RepositoryFile]) -> int:
    return sum(file.size_bytes for file in files)


def _require_room(
    missing: list[RepositoryFile], cache: RepositoryCache, settings: HubSettings
) -> None:
    needed = _total(missing) - sum(part_bytes(cache.part(file)) for file in missing)
    free = free_bytes(settings)
    if needed > free:
        raise DownloadError(
            f"this download needs {size_text(needed)}",
            f"{size_text(free)} are free below {settings.cache}",
            "Make room, choose a smaller quantization, or let HF_HOME name another disk.",
        )


@contextmanager
def _locked(
    repository: Repository, first: RepositoryFile, settings: HubSettings
) -> Generator[None]:
    """Hold a lock, so that no two downloads write the same partial file."""
    from huggingface_hub.utils import WeakFileLock

    locks = real_folder(settings.cache, ".locks", settings.folder(repository.name).name)
    lock = WeakFileLock(locks / f"specchat-{first.digest}.lock", timeout=_LOCK_SECONDS)
    with ExitStack() as held:
        try:
            held.enter_context(lock)
        except TimeoutError as error:
            raise DownloadError(
                f"{first.path} is being downloaded already",
                "by another specchat",
                "Wait for it.",
            ) from error
        yield


class DownloadJob:
    """A running or finished download. Thread-safe.

    To resume a stopped or failed one, start another with the same request.
    """

    def __init__(self, request: DownloadRequest, settings: HubSettings) -> None:
        self.request = request
        self.progress = Progress(Phase.ASKING)
        """Latest progress."""
        self._settings = settings
        self._stop = Event()
        self._ended = Event()
        self._outcome: Downloaded | SpecchatError = DownloadStoppedError(
            f"the download of {request.repository} was stopped",
            "the downloaded part is kept",
            "Ask for it again to resume it.",
        )
        Thread(target=self._run, name=f"download {request.repository}", daemon=True).start()

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def succeeded(self) -> bool:
        return not self.running and isinstance(self._outcome, Downloaded)

    def stop(self) -> None:
        """Stop with the next bytes, or when a silent connection times out."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most so many seconds; whether it has ended."""
        return self._ended.wait(seconds)

    def result(self) -> Downloaded:
        """Wait for the end and return the downloaded model.

        Raises:
            DownloadStoppedError: it was stopped.
            SpecchatError: it failed, as for download.
        """
        self._ended.wait()
        if isinstance(self._outcome, SpecchatError):
            raise self._outcome
        return self._outcome

    def _run(self) -> None:
        try:
            with closing(self._steps()) as steps:
                for self.progress in steps:
                    if self._stop.is_set():
                        break
        except SpecchatError as error:
            self._outcome = error
        except Exception as error:
            self._outcome = DownloadError(
                f"the download of {self.request.repository} failed",
                f"{type(error).__name__}: {error}",
            )
        finally:
            self._ended.set()

    def _steps(self) -> Generator[Progress, None, None]:
        self._outcome = yield from download(self.request, self._settings)
