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
from models.hub.connection import (
    Answer,
    Connection,
    CutError,
    free_bytes,
    hub_client,
    mapped_errors,
    refused,
)
from models.hub.progress import HubSettings, Meter, Phase, Progress
from models.hub.repository import (
    Repository,
    RepositoryFile,
    files_wanted,
    list_repository,
    require_distinct,
)
from models.hub.repository_cache import (
    RepositoryCache,
    opened_part,
    part_bytes,
    real_folder,
    record,
)

_CHUNK = 8 << 20
_SHA256_LENGTH = 64
_LOCK_SECONDS = 0.2
_TICK_SECONDS = 0.1
_WHOLE, _PARTIAL_CONTENT, _RANGE_REFUSED, _SERVER_FAULT = 200, 206, 416, 500
_RANGE = re.compile(r"bytes ([0-9]{1,19})-[0-9]{1,19}/([0-9]{1,19}|\*)")


class _RestartedError(CutError):
    """A response that does not resume the last one; the received part is lost."""


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """Repository, organization/name, and the wanted quantization or file name, or None."""

    repository: str
    wanted: str | None = None


@dataclass(frozen=True, slots=True)
class Downloaded:
    """Model that is complete in the cache; path: a GGUF file, its first part, or an MLX folder."""

    repository: str
    commit: str
    path: Path
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
        require_distinct((file.path for file in files), (file.path for file in repository.files))
        for file in files:
            if not file.size_bytes:
                raise ValueError(f"{file.path} is listed as empty")
        with _locked(repository, files[0], settings):
            cache = RepositoryCache.of(repository, settings, files[0].digest)
            return (yield from _Download(repository, connection, settings, files, cache).steps())


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
            what = f"{first.path} is being downloaded already"
            raise DownloadError(what, "by another specchat", "Wait for it.") from error
        yield


@dataclass(frozen=True, slots=True)
class _Download:
    _repository: Repository
    _connection: Connection
    _settings: HubSettings
    _files: tuple[RepositoryFile, ...]
    _cache: RepositoryCache

    def steps(self) -> Generator[Progress, None, Downloaded]:
        repository, cache, files = self._repository, self._cache, self._files
        by_digest = {file.digest: file for file in files}
        contents = yield from self._already_there(by_digest.values())
        missing = [file for digest, file in by_digest.items() if digest not in contents]
        self._require_room(missing)
        meter = Meter(Phase.RECEIVING, _total(missing), self._present(missing))
        for file in missing:
            yield from self._receive(file, meter)
        yield from self._check(missing)
        for file in missing:
            contents[file.digest] = put_in_place(cache.part(file), cache.home(file))
        for file in files:
            cache.enter(file, contents[file.digest])
        cache.update_main()
        ours = [file.path for file in files if by_digest[file.digest] in missing]
        record(self._settings.receipts, repository.name, repository.commit, ours)
        is_file = files[0].path.lower().endswith(".gguf")
        path = cache.entry(files[0]) if is_file else cache.snapshot
        return Downloaded(repository.name, repository.commit, path, _total(files))

    def _already_there(
        self, files: Iterable[RepositoryFile]
    ) -> Generator[Progress, None, dict[str, Path]]:
        """Paths of contents in the cache, by digest; each file is verified, whatever its name."""
        candidates = {file: path for file in files if (path := self._cache.candidate(file))}
        meter = Meter(Phase.CHECKING, _total(candidates))
        contents: dict[str, Path] = {}
        for file, path in candidates.items():
            try:
                for count in _verified(path, file):
                    yield meter.add(count)
            except (OSError, ValueError):
                continue  # it is downloaded again and replaces the damaged one
            contents[file.digest] = path
        return contents

    def _present(self, files: Iterable[RepositoryFile]) -> int:
        return sum(part_bytes(self._cache.part(file)) for file in files)

    def _require_room(self, missing: list[RepositoryFile]) -> None:
        needed, free = _total(missing) - self._present(missing), free_bytes(self._settings)
        if needed > free:
            raise DownloadError(
                f"this download needs {size_text(needed)}",
                f"{size_text(free)} are free below {self._settings.cache}",
                "Make room, choose a smaller quantization, or let HF_HOME name another disk.",
            )

    def _check(self, missing: list[RepositoryFile]) -> Iterator[Progress]:
        meter = Meter(Phase.CHECKING, _total(missing))
        for file in missing:
            part = self._cache.part(file)
            try:
                for count in _verified(part, file):
                    yield meter.add(count)
            except ValueError as error:
                part.unlink()
                raise DownloadError(
                    f"{file.path} arrived damaged and was deleted",
                    str(error),
                    "Download it again. "
                    f"If that happens again, {self._settings.endpoint} has a wrong file.",
                ) from error

    def _receive(self, file: RepositoryFile, meter: Meter) -> Iterator[Progress]:
        """Append to a partial file until it is complete, resuming lost connections.

        Each attempt receives at most one file's length.
        """
        from httpx2 import TransportError

        settings, part = self._settings, self._cache.part(file)
        attempt, restarts = 1, 0
        while (before := part_bytes(part)) < file.size_bytes:
            try:
                yield from self._attempt(file, part, meter)
            except (TransportError, CutError) as cut:
                restarts += isinstance(cut, _RestartedError)
                received = part_bytes(part) - before
                # A byte per connection is no progress: it could go on for ever.
                attempt = 1 if received >= settings.window_bytes else attempt + 1
                if max(attempt, restarts) > settings.attempts:
                    raise
                yield from _wait(settings.first_wait * 2 ** max(attempt - 2, 0), meter)

    def _attempt(self, file: RepositoryFile, part: Path, meter: Meter) -> Iterator[Progress]:
        hub: Any = hub_client()
        start, repository = part_bytes(part), self._repository
        url = hub.hf_hub_url(
            repository.name,
            file.path,
            revision=repository.commit,
            endpoint=self._settings.endpoint,
        )
        headers = {"Range": f"bytes={start}-"} if start else None
        with self._connection.get(url, headers) as answer:
            if answer.status >= _SERVER_FAULT:
                raise CutError(f"it answers {answer.status}")
            if start and answer.status in (_WHOLE, _RANGE_REFUSED):
                part.unlink()
                yield meter.add(-start)
                raise _RestartedError("it does not resume the download")
            if answer.status != (_PARTIAL_CONTENT if start else _WHOLE):
                raise refused(answer, repository.name, self._settings)
            _require_announced(answer.headers, start, file)
            yield from _append(answer, part, file, meter)
        if part_bytes(part) < file.size_bytes:
            raise CutError("the connection ended early")


def _total(files: Iterable[RepositoryFile]) -> int:
    return sum(file.size_bytes for file in files)


def _verified(path: Path, expected: RepositoryFile) -> Iterator[int]:
    """Yield the number of bytes read at each step. Raises ValueError: it has another digest."""
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


class DownloadJob:
    """A running or finished download, independent of its display. Thread-safe.

    To resume a stopped or failed one, start another with the same request.
    """

    def __init__(self, request: DownloadRequest, settings: HubSettings) -> None:
        self.request = request
        self.progress = Progress(Phase.ASKING)
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
            what = f"the download of {self.request.repository} failed"
            self._outcome = DownloadError(what, f"{type(error).__name__}: {error}")
        finally:
            self._ended.set()

    def _steps(self) -> Generator[Progress, None, None]:
        self._outcome = yield from download(self.request, self._settings)
