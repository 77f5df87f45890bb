"""What was acknowledged survives a power cut: the disk then has only what it was told to keep."""

import _sqlite3
import ctypes
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.chat.unsent import ClearedTexts, ComposerDraft
from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import ASSISTANT, USER, Turn
from app.history import History, HistoryError
from app.history.schema import prepare
from app.paths import Paths
from app.settings import file as settings
from backends.base import UsageError

# A disk that keeps only what it was told to: everything else is gone after a power cut.
#
# A file has the bytes that it had at its last fsync, none before the first. A folder has the names
# that it had at its last fsync. What the disk was told is heard from os.fsync and, as SQLite calls
# the system itself, from the method by which it syncs a file.

_POINTER = ctypes.c_void_p
_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, _POINTER, ctypes.c_int, _POINTER)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_int)
_METHODS = 19
"""Words of sqlite3_io_methods in its third version; the first holds the version."""

_SYNC_METHOD = 5


class _Vfs(ctypes.Structure):
    """The beginning of sqlite3_vfs."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_bytes", ctypes.c_int),
        ("longest_name", ctypes.c_int),
        ("next", _POINTER),
        ("name", ctypes.c_char_p),
        ("data", _POINTER),
        ("open", _POINTER),
    )


class Disk:
    """The files below a folder, and what a power cut would leave of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.synced: list[str] = []
        """Names of the files and folders that were synced, in order."""
        self._contents: dict[int, bytes] = {}
        self._cuts = 0
        self._names: dict[Path, dict[str, int | None]] = {root: {}}
        """By folder the inode of each name, None for a folder."""
        self._open: list[int] = []
        """Keeps the inodes from being used again. Closed files would drop SQLite's locks."""

    def sync(self, path: Path) -> None:
        """Keep a file or a folder as it is now."""
        if not path.is_relative_to(self.root):
            return
        self.synced.append(path.name)
        if path.is_dir():
            entries = list(os.scandir(path))
            self._names[path] = {
                entry.name: None if entry.is_dir() else entry.inode() for entry in entries
            }
            return
        descriptor = os.open(path, os.O_RDONLY)
        self._open.append(descriptor)
        status = os.fstat(descriptor)
        self._contents[status.st_ino] = os.pread(descriptor, status.st_size, 0)

    def after_power_cut(self, to: Path) -> Path:
        """Write what is left into a new folder within to, and return it.

        What still runs on the one before may write there while it is removed.
        """
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(exist_ok=True)
        self._cuts += 1
        left = to / str(self._cuts)
        self._write(self.root, left)
        return left

    def _write(self, folder: Path, to: Path) -> None:
        to.mkdir()
        for name, inode in self._names.get(folder, {}).items():
            if inode is None:
                self._write(folder / name, to / name)
            else:
                (to / name).write_bytes(self._contents.get(inode, b""))

    def close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)


@contextmanager
def power_cuts(root: Path, patch: pytest.MonkeyPatch) -> Generator[Disk]:
    """A disk that hears every fsync below an empty folder."""
    disk = Disk(root)
    fsync = os.fsync

    def heard(descriptor: int) -> None:
        fsync(descriptor)
        disk.sync(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    patch.setattr(os, "fsync", heard)
    with _heard_from_sqlite(disk.sync):
        yield disk
    disk.close()


@contextmanager
def _heard_from_sqlite(heard: Callable[[Path], None]) -> Generator[None]:
    """Call heard with each file that SQLite syncs, of connections that are opened meanwhile."""
    library = ctypes.CDLL(_sqlite3.__file__)
    if not hasattr(library, "sqlite3_vfs_find"):
        pytest.skip("SQLite is part of this Python, and cannot be listened to")
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None).contents
    original, kept = vfs.open, list[Any]()
    is_new: set[Path] = set()

    @_OPEN
    def opened(vfs_address: int, name: int, file: int, flags: int, out: int) -> int:
        path = Path(os.fsdecode(ctypes.string_at(name))) if name else None
        if path and not path.exists():
            is_new.add(path)
        code = _OPEN(original)(vfs_address, name, file, flags, out)
        if code or not path:
            return code
        place = ctypes.cast(file, ctypes.POINTER(_POINTER))
        methods = (_POINTER * _METHODS).from_buffer_copy(
            (_POINTER * _METHODS).from_address(place[0] or 0)
        )
        sync = _SYNC(methods[_SYNC_METHOD])

        @_SYNC
        def synced(address: int, how: int) -> int:
            code = sync(address, how)
            heard(path)
            if path in is_new:  # SQLite syncs the folder of a log or journal with its first sync
                is_new.discard(path)
                heard(path.parent)
            return code

        methods[_SYNC_METHOD] = ctypes.cast(synced, _POINTER).value
        place[0] = ctypes.addressof(methods)
        kept.extend((methods, sync, synced))
        return code

    vfs.open = ctypes.cast(opened, _POINTER).value
    try:
        yield
    finally:
        vfs.open = original


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds names in /proc")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    root = tmp_path / "disk"
    root.mkdir()
    monkeypatch.setenv("SPECCHAT_HOME", str(root))
    with power_cuts(root, monkeypatch) as listening:
        yield listening


class _Session:
    """A person at the app, and what the app has told them is kept."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._paths = Paths.of_this_user()
        self.history = History.open(self._paths.history)
        self._dialogue = Dialogue(self.history, model="demo")
        self._draft = ComposerDraft(self._paths)
        self._answer: Turn | None = None
        self._count = 0
        self.kept: set[str] = set()
        self._last: dict[str, str] = {}
        """Texts that the next of their kind takes the place of."""

    def step(self) -> None:
        steps: list[Callable[[], None]] = [
            self._ask, self._ask, self._grow, self._end, self._queue, self._send_queued,
            self._type, self._clear, self._rename, self._set,
        ]  # fmt: skip
        self._random.choice(steps)()

    def _text(self, kind: str) -> str:
        self._count += 1
        return f"<{kind} {self._count} {'x' * self._random.choice([1, 5000])}>"

    def _replaces(self, kind: str, text: str) -> str:
        self.kept.discard(self._last.get(kind, ""))
        self.kept.add(text)
        self._last[kind] = text
        return text

    def _ask(self) -> None:
        self._end()
        text = self._text("question")
        self._dialogue.add(USER, text)
        self._answer = self._dialogue.add(ASSISTANT, "")
        self.kept.add(text)

    def _grow(self) -> None:
        if self._answer is not None:
            self._answer.text += self._text("piece")
            self._dialogue.save(self._answer)

    def _end(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.text += self._text("last piece")
            answer.ending = "12 tokens"
            self._dialogue.save(answer)
            self.kept.add(f"{answer.text}|{answer.ending}")

    def _queue(self) -> None:
        text = self._text("queued")
        self._dialogue.enqueue(text)
        self.kept.add(text)

    def _send_queued(self) -> None:
        self._end()
        if queued := self._dialogue.next_queued():
            self._dialogue.add(USER, queued.text, queued.attachments)

    def _type(self) -> None:
        self._draft.keep(self._replaces("typed", self._text("typed")))

    def _clear(self) -> None:
        text = self._text("cleared")
        ClearedTexts(self._paths.cleared).add(text)
        self.kept.add(text)

    def _rename(self) -> None:
        if self._dialogue.chat is not None:
            self._dialogue.rename(self._replaces("title", self._text("title")))

    def _set(self) -> None:
        system = self._replaces("system", self._text("system"))
        settings.save(self._paths.settings, {"system": system})

    def close(self) -> None:
        self._draft.close()
        self.history.close()


def _found(monkeypatch: pytest.MonkeyPatch, home: Path) -> str:
    """All texts in a folder, as the app reads them at its next start."""
    found: list[str] = []
    with monkeypatch.context() as patch, suppress(HistoryError, UsageError):
        patch.setenv("SPECCHAT_HOME", str(home))
        paths = Paths.of_this_user()
        with closing(History.open(paths.history, repairs=False)) as history:
            for chat in history.chats():
                found.append(chat.title)
                found += [f"{one.text}|{one.ending}" for one in history.messages(chat.number)]
                found += [one.text for one in history.queue(chat.number)]
        draft = ComposerDraft(paths)
        found += [draft.left, *ClearedTexts(paths.cleared).texts()]
        draft.close()
        found.append(str(settings.read(paths.settings).get("system")))
    return "\n".join(found)


def _lost(disk: Disk, left: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What a session was told is kept, and is gone after a power cut at one of its steps."""
    session = _Session(Random(seed))
    with closing(session):
        for _ in range(16):
            session.step()
            found = _found(monkeypatch, disk.after_power_cut(left))
            if lost := {text for text in session.kept if text not in found}:
                return lost
    return set()


def test_what_was_acknowledged_is_kept(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not _lost(disk, tmp_path / "left", 1, monkeypatch)


def _without_wal_sync(patch: pytest.MonkeyPatch) -> None:
    def unsynced(connection: object, seconds: float) -> None:
        prepare(connection, seconds)  # type: ignore[arg-type]
        connection.execute("PRAGMA synchronous = NORMAL")  # type: ignore[attr-defined]

    patch.setattr("app.history.schema.prepare", unsynced)


def _without_file_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("backends.base.safe_files.sync_file", lambda file: file.flush())


def _without_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("backends.base.safe_files.sync_folder", lambda folder: None)


def _without_folders(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("backends.base.safe_files.sync_folder", lambda folder: None)


@pytest.mark.parametrize(
    "wrong", [_without_wal_sync, _without_file_sync, _without_names, _without_folders]
)
def test_each_sync_that_is_left_out_loses_something(
    wrong: Callable[[pytest.MonkeyPatch], None],
    disk: Disk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong(monkeypatch)
    assert _lost(disk, tmp_path / "left", 1, monkeypatch)


@pytest.mark.nightly
def test_many_sessions(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(2, 202):
        home = disk.root / str(seed)
        monkeypatch.setenv("SPECCHAT_HOME", str(home))
        with monkeypatch.context() as patch, power_cuts(_made(home), patch) as own:
            assert not _lost(own, tmp_path / "left", seed, monkeypatch), seed


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_growth_waits_for_the_disk_now_and_then_and_the_ending_always(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(History.open(Paths.of_this_user().history)) as history:
        chat = history.create("demo")
        question = history.add(chat, "user", "Why?")
        disk.synced.clear()
        history.show(chat, 0, question)  # it is: nothing changes
        answer = history.add(chat, "assistant", "", writer="me")
        assert disk.synced == ["chats.sqlite3-wal"]
        for step in range(1, 9):
            assert history.update(answer, "x" * step, writer="me")
        assert disk.synced == ["chats.sqlite3-wal"]
        monkeypatch.setattr("app.history.database.SYNC_SECONDS", 0.0)
        assert history.update(answer, "x" * 10, writer="me")
        assert len(disk.synced) == 2
        assert history.update(answer, "x" * 10, "10 tokens")
        assert len(disk.synced) == 3
