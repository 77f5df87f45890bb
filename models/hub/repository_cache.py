"""Entering files into the cache of huggingface_hub, as its client would, under checked names.

The client takes names from the headers of an answer, so it is not asked. Every folder below the
cache is a real one: a link that somebody put there would lead out of it.
"""

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from backends.base import DownloadError
from models.hub.hub_settings import HubSettings
from models.hub.repository import Repository, RepositoryFile
from models.hub.unfinished import PART_SUFFIX

_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n"
"""Backup programs leave a folder out whose CACHEDIR.TAG begins so (bford.info/cachedir)."""


@dataclass(frozen=True, slots=True)
class RepositoryCache:
    """Where the files of one repository at one commit lie."""

    root: Path
    blobs: Path
    refs: Path
    snapshot: Path
    links: bool
    """Whether a snapshot's files are links to the blobs; without, they are the files themselves."""
    writer: str
    """Whose parts are written here: no two downloads that run at once have the same."""

    @classmethod
    def of(cls, repository: Repository, settings: HubSettings, writer: str) -> Self:
        """Make its folders.

        Raises:
            DownloadError: one of them is a link.
            OSError: one cannot be made.
        """
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
        """Where a file's content lies if entries are links."""
        return self.blobs / file.digest

    def part(self, file: RepositoryFile) -> Path:
        """What came of a file so far, for this writer alone: nobody else appends to what it checks.

        The client's own names for parts are left alone.
        """
        return self._part(file.digest)

    def entry(self, file: RepositoryFile) -> Path:
        """A file in the snapshot, its folder made where it is missing.

        Raises:
            DownloadError: a folder of its path is a link.
            OSError: one cannot be made.
        """
        *folders, name = file.path.split("/")
        return real_folder(self.snapshot, *folders) / name

    def home(self, file: RepositoryFile) -> Path:
        """Where checked content goes."""
        return self.blob(file) if self.links else self.entry(file)

    def candidate(self, file: RepositoryFile) -> Path | None:
        """A file of the right size where its content would lie, whoever put it there.

        A blob may be a link within the cache: the client shares contents between repositories so.
        """
        entry, blob = self.entry(file), self.blob(file)
        places = (blob,) if is_link(entry) else (entry, blob)
        found = next((place for place in places if _may_be(place, file)), None)
        return found if found and found.resolve().is_relative_to(self.root.resolve()) else None

    def enter(self, file: RepositoryFile, content: Path) -> None:
        """Let a file's path in the snapshot lead to checked content.

        Raises:
            OSError: it cannot be written.
        """
        entry = self.entry(file)
        if content == entry:
            return
        if self.links and content == self.blob(file):
            target = os.path.relpath(content, entry.parent)
            if not is_link(entry) or os.readlink(entry) != target:
                entry.unlink(missing_ok=True)
                entry.symlink_to(target)
            return
        part = self.part(file)
        with content.open("rb") as source, opened_part(part) as copy:
            copy.truncate(0)
            shutil.copyfileobj(source, copy, 1 << 20)
        part.replace(entry)

    def name_main(self) -> None:
        """Let `main` mean this commit.

        Raises:
            OSError: it cannot be written.
        """
        part = self._part("main")
        with opened_part(part) as out:
            out.truncate(0)
            out.write(self.snapshot.name.encode())
        part.replace(self.refs / "main")

    def _part(self, name: str) -> Path:
        of_writer = "" if name == self.writer else f"-{self.writer[:12]}"
        return self.blobs / f"{name}{of_writer}{PART_SUFFIX}"


def real_folder(root: Path, *names: str) -> Path:
    """A folder below a root, made where it is missing.

    Raises:
        DownloadError: one of the names is a link or a file.
        OSError: one cannot be made.
    """
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
    """Whether a path is a link of any kind: on Windows a junction too."""
    try:
        status = path.lstat()
    except OSError:
        return False
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == junction


def part_bytes(part: Path) -> int:
    """How much came so far; what is no plain file of one name counts as nothing."""
    try:
        status = part.lstat()
    except OSError:
        return 0
    return status.st_size if _is_plain(status) else 0


def opened_part(part: Path) -> BinaryIO:
    """A part to append to. What is no plain file of one name goes first: bytes would go elsewhere.

    Raises:
        OSError: it cannot be opened.
    """
    with suppress(FileNotFoundError):
        if not _is_plain(part.lstat()):
            part.unlink()
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(part, flags, 0o666), "ab")


def _is_plain(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _may_be(path: Path, file: RepositoryFile) -> bool:
    """Whether there is a file of the right size, links followed: it is worth reading."""
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == file.size_bytes
