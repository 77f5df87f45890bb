"""Downloading a model from the hub into the shared cache, step by step."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from backends.base import DownloadError
from backends.base.atomic_file import put_in_place
from models.byte_sizes import size_text
from models.hub import receipts
from models.hub.checksum import check
from models.hub.connection import Connection
from models.hub.error_mapping import free_bytes, mapped_errors
from models.hub.file_selection import files_wanted
from models.hub.hub_settings import HubSettings
from models.hub.progress import Meter, Phase, Progress
from models.hub.repository import Repository, RepositoryFile, list_repository
from models.hub.repository_cache import RepositoryCache, part_bytes, real_folder
from models.hub.safe_paths import require_distinct
from models.hub.transfer import receive

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
