"""A model from the hub into the shared cache, step by step."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.base import DownloadError
from models.hub import receipts
from models.hub.checksum import check
from models.hub.choice import files_wanted
from models.hub.client import hub_client
from models.hub.faults import free_bytes, told_as_ours
from models.hub.progress import Meter, Phase, Progress
from models.hub.repository import Repository, RepositoryFile, list_repository
from models.hub.settings import HubSettings
from models.hub.transfer import receive
from models.hub.unfinished import PART_SUFFIX
from models.size_text import size_text
from models.whole_file import write_whole

_LOCK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """A repository, organization/name, and what of it: a quantization, a file's name, or None."""

    repository: str
    wanted: str | None = None


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A model that lies whole in the cache."""

    repository: str
    commit: str
    path: Path
    """What to load: a GGUF file, the first of its parts, or an MLX folder."""
    size_bytes: int


def download(
    request: DownloadRequest, settings: HubSettings
) -> Generator[Progress, None, Downloaded]:
    """Bring a model into the cache; what is there already is not asked for again.

    Closing the generator stops it; the next download of the same files goes on where it stopped.

    Raises:
        DownloadError: the network, the hub, the disk, or a file that is not what the hub promised.
        UsageError: the repository has no such model.
    """
    yield Progress(Phase.ASKING)
    repository = list_repository(request.repository, settings)
    files = files_wanted(repository, request.wanted)
    with told_as_ours(repository.name, settings), _alone(repository, files[0], settings):
        blobs = settings.folder(repository.name) / "blobs"
        blobs.mkdir(parents=True, exist_ok=True)
        missing = [
            _Missing(file, blobs / digest)
            for digest, file in {file.digest: file for file in files}.items()
            if not (blobs / digest).is_file()
        ]
        _require_room(missing, settings)
        yield from _received(repository, missing, settings)
        yield from _checked(missing, settings)
        for one in missing:
            one.part.replace(one.blob)
        path = _placed(repository, files, settings)
        ours = [one.file.path for one in missing]
        receipts.record(settings.receipts, repository.name, repository.commit, ours)
        size = sum(file.size_bytes for file in files)
        return Downloaded(repository.name, repository.commit, path, size)


@dataclass(frozen=True, slots=True)
class _Missing:
    """A file to fetch, and where the cache wants its content."""

    file: RepositoryFile
    blob: Path

    @property
    def part(self) -> Path:
        """What came so far. The client's own names for parts are left alone."""
        return self.blob.with_name(f"{self.blob.name}{PART_SUFFIX}")

    @property
    def had_bytes(self) -> int:
        """How much came so far."""
        return self.part.stat().st_size if self.part.exists() else 0


def _received(
    repository: Repository, missing: list[_Missing], settings: HubSettings
) -> Iterator[Progress]:
    total, had = _total(missing), sum(one.had_bytes for one in missing)
    meter = Meter(Phase.RECEIVING, total, had)
    for one in missing:
        yield from receive(repository, one.file, one.part, settings, meter)


def _checked(missing: list[_Missing], settings: HubSettings) -> Iterator[Progress]:
    meter = Meter(Phase.CHECKING, _total(missing))
    for one in missing:
        try:
            for count in check(one.part, one.file):
                yield meter.add(count)
        except ValueError as error:
            one.part.unlink()
            raise DownloadError(
                f"{one.file.path} came damaged and was deleted",
                str(error),
                f"Download it again. If that happens again, {settings.endpoint} has a wrong file.",
            ) from error


def _total(missing: Iterable[_Missing]) -> int:
    return sum(one.file.size_bytes for one in missing)


def _require_room(missing: list[_Missing], settings: HubSettings) -> None:
    needed = _total(missing) - sum(one.had_bytes for one in missing)
    free = free_bytes(settings)
    if needed > free:
        raise DownloadError(
            f"this download needs {size_text(needed)}",
            f"{size_text(free)} are free below {settings.cache}",
            "Make room, choose a smaller quantization, or let HF_HOME name another disk.",
        )


def _placed(
    repository: Repository, files: tuple[RepositoryFile, ...], settings: HubSettings
) -> Path:
    """Let the client enter the files into its cache; their contents are there already."""
    hub: Any = hub_client()
    paths = [
        hub.hf_hub_download(
            repository.name,
            file.path,
            revision=repository.commit,
            cache_dir=settings.cache,
            endpoint=settings.endpoint,
            etag_timeout=settings.timeout,
        )
        for file in files
    ]
    folder = settings.folder(repository.name)
    (folder / "refs").mkdir(exist_ok=True)
    write_whole(folder / "refs" / "main", repository.commit)
    if files[0].path.lower().endswith(".gguf"):
        return Path(paths[0])
    return folder / "snapshots" / repository.commit


@contextmanager
def _alone(repository: Repository, first: RepositoryFile, settings: HubSettings) -> Generator[None]:
    """Keep two downloads from writing the same part."""
    from huggingface_hub.utils import WeakFileLock

    locks = settings.cache / ".locks" / settings.folder(repository.name).name
    locks.mkdir(parents=True, exist_ok=True)
    lock = WeakFileLock(locks / f"specchat-{first.digest}.lock", timeout=_LOCK_SECONDS)
    with ExitStack() as held:
        try:
            held.enter_context(lock)
        except TimeoutError as error:
            raise DownloadError(
                f"{first.path} is being downloaded already",
                "another specchat is at it",
                "Wait for it.",
            ) from error
        yield
