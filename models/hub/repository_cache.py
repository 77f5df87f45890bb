"""Storing files in the cache of huggingface_hub, as its client would, under checked names.

The client itself is not used, as it takes names from response headers. Every folder below the cache
must be a real one: a link could lead out of it.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self, cast

from backends.base import DownloadError
from backends.base.safe_files import put_in_place, sync_folder
from models.bounded_files import change_object, read_object
from models.hub.progress import HubSettings
from models.hub.repository import Repository, RepositoryFile

PART_SUFFIX = ".specchat.incomplete"


def record(receipts: Path, repository: str, commit: str, files: list[str]) -> None:
    """Record files that specchat downloaded; if that fails, they count as foreign."""
    key = f"{repository}@{commit}"
    change_object(
        receipts, lambda known: {**known, key: sorted({*_listed(known.get(key)), *files})}
    )


def is_ours(receipts: Path, repository: str, commit: str, file: str) -> bool:
    return file in _listed(read_object(receipts).get(f"{repository}@{commit}"))


def _listed(files: object) -> list[str]:
    return [str(file) for file in cast("list[object]", files)] if isinstance(files, list) else []


def unfinished(cache: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for repository, part in _parts(cache):
        sizes[repository] = sizes.get(repository, 0) + part.lstat().st_size
    return sizes


def discard(repository: str, cache: Path) -> None:
    """Delete a repository's unfinished downloads. Raises OSError: a file cannot be deleted."""
    for owner, part in list(_parts(cache)):
        if owner == repository:
            part.unlink()


def _parts(cache: Path) -> Iterator[tuple[str, Path]]:
    for part in sorted(cache.glob(f"models--*/blobs/*{PART_SUFFIX}")):
        folder = part.parent.parent.name
        yield folder.removeprefix("models--").replace("--", "/", 1), part


_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n"
"""Start of CACHEDIR.TAG, by which backup programs skip a folder (bford.info/cachedir)."""


@dataclass(frozen=True, slots=True)
class RepositoryCache:
    root: Path
    blobs: Path
    refs: Path
    snapshot: Path
    links: bool
    """Whether a snapshot's files are links to blobs; otherwise they are regular files."""
    writer: str
    """Identity of the download, distinct for simultaneous ones; part of partial file names."""

    @classmethod
    def of(cls, repository: Repository, settings: HubSettings, writer: str) -> Self:
        from huggingface_hub.file_download import are_symlinks_supported

        folder = settings.folder(repository.name).name
        blobs = real_folder(settings.cache, folder, "blobs")
        refs = real_folder(settings.cache, folder, "refs")
        snapshot = real_folder(settings.cache, folder, "snapshots", repository.commit)
        with suppress(FileExistsError), (settings.cache / "CACHEDIR.TAG").open("x") as tag:
            tag.write(_TAG)
        return cls(
            settings.cache, blobs, refs, snapshot, are_symlinks_supported(settings.cache), writer
        )

    def blob(self, file: RepositoryFile) -> Path:
        return self.blobs / file.digest

    def part(self, file: RepositoryFile) -> Path:
        """Partial file of this writer, to which no other appends.

        The name differs from the client's own partial files.
        """
        return self._part(file.digest)

    def entry(self, file: RepositoryFile) -> Path:
        *folders, name = file.path.split("/")
        return real_folder(self.snapshot, *folders) / name

    def home(self, file: RepositoryFile) -> Path:
        return self.blob(file) if self.links else self.entry(file)

    def candidate(self, file: RepositoryFile) -> Path | None:
        """Existing file of the right size that may hold the content, whoever wrote it.

        A blob may be a link within the cache, by which the client shares contents.
        """
        entry, blob = self.entry(file), self.blob(file)
        paths = (blob,) if is_link(entry) else (entry, blob)
        path = next((path for path in paths if _has_size_of(path, file)), None)
        return path if path and path.resolve().is_relative_to(self.root.resolve()) else None

    def enter(self, file: RepositoryFile, content: Path) -> None:
        entry = self.entry(file)
        if content == entry:
            return
        if self.links and content == self.blob(file):
            target = os.path.relpath(content, entry.parent)
            if not is_link(entry) or os.readlink(entry) != target:
                entry.unlink(missing_ok=True)
                entry.symlink_to(target)
                sync_folder(entry.parent)
            return
        part = self.part(file)
        with content.open("rb") as source, opened_part(part) as copy:
            copy.truncate(0)
            shutil.copyfileobj(source, copy, 1 << 20)
        put_in_place(part, entry)

    def update_main(self) -> None:
        part = self._part("main")
        with opened_part(part) as out:
            out.truncate(0)
            out.write(self.snapshot.name.encode())
        put_in_place(part, self.refs / "main")

    def _part(self, name: str) -> Path:
        of_writer = "" if name == self.writer else f"-{self.writer[:12]}"
        return self.blobs / f"{name}{of_writer}{PART_SUFFIX}"


def real_folder(root: Path, *names: str) -> Path:
    """Folder below a root, created if missing."""
    folder = root
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        folder /= name
        with suppress(FileExistsError):
            folder.mkdir()
        if is_link(folder) or not folder.is_dir():
            raise DownloadError(
                f"{folder} is not a folder of the cache",
                "it is a link or a file, and a download could end up elsewhere",
                "Remove it, or let HF_HUB_CACHE name another folder.",
            )
    return folder


def is_link(path: Path) -> bool:
    """Whether a path is a symbolic link, or a junction on Windows."""
    try:
        status = path.lstat()
    except OSError:
        return False
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == junction


def part_bytes(part: Path) -> int:
    """Size of a partial file; 0 if it is no regular file with a single name."""
    try:
        status = part.lstat()
    except OSError:
        return 0
    return status.st_size if _is_plain(status) else 0


def opened_part(part: Path) -> BinaryIO:
    """Open a partial file to append to.

    Anything but a regular file with a single name is removed first: bytes would go elsewhere.
    """
    with suppress(FileNotFoundError):
        if not _is_plain(part.lstat()):
            part.unlink()
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(part, flags, 0o666), "ab")


def _is_plain(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _has_size_of(path: Path, file: RepositoryFile) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == file.size_bytes
