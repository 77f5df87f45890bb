"""Text that was typed and not sent: it stands in the prompt at the next start, however this ended.

Each app that runs has a file of its own, by a lock that the system lets go of when the app ends in
any way. So a file whose lock is free was left behind, and what it holds is nobody else's.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread

from filelock import BaseFileLock, FileLock, Timeout

from app.paths import Paths
from backends.base.atomic_file import write_whole
from backends.base.private_file import make_private_folder
from backends.base.regular_file import read_bounded

_MOST_BYTES = 16 << 20
_MOST_FILES = 16
"""Apps at once, beyond which one more keeps nothing."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A file whose lock was free, and is ours."""

    path: Path
    lock: BaseFileLock
    text: str


class ComposerDraft:
    """The file of this app. left: what apps before this one left in theirs."""

    def __init__(self, paths: Paths) -> None:
        self._writing = Lock()
        self._wanted = self._written = self.left = ""
        self._own: _Held | None = None
        with suppress(OSError):
            make_private_folder(paths.data)
            self._take_over(_held(paths.unsent))

    def keep(self, text: str) -> None:
        """Have the file hold a text, where that is possible."""
        self._wanted = text
        self._write()

    def keep_soon(self, text: str) -> None:
        """Have the file hold a text, without waiting for the disk."""
        if text != self._wanted:
            self._wanted = text
            Thread(target=self._write, name="composer draft", daemon=True).start()

    def close(self) -> None:
        """Leave the file to the next app."""
        if self._own is not None:
            self._own.lock.release()

    def _take_over(self, held: list[_Held]) -> None:
        """Have all that was left in one file, which is ours, before the others go."""
        if not held:
            return
        self._own, *others = held
        self._written = self._own.text
        self.left = "\n\n".join(one.text for one in held if one.text.strip())
        self.keep(self.left)
        for one in others:
            one.path.unlink(missing_ok=True)
            one.lock.release()

    def _write(self) -> None:
        if self._own is None:
            return
        path = self._own.path
        with self._writing, suppress(OSError):
            wanted = self._wanted
            if wanted == self._written:
                return
            if wanted:
                write_whole(path, wanted)
            else:
                path.unlink(missing_ok=True)
            self._written = wanted


def _held(first: Path) -> list[_Held]:
    """The first file that no app has, and those beside it that were left behind."""
    held: list[_Held] = []
    for place in range(1, _MOST_FILES + 1):
        path = first if place == 1 else first.with_stem(f"{first.stem}-{place}")
        if held and not path.exists():
            continue
        lock = FileLock(path.with_name(f".{path.name}.lock"), mode=0o600)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            continue
        except (OSError, NotImplementedError):
            if held:  # no locks on this disk: whose it is cannot be told
                break
        held.append(_Held(path, lock, _text(path)))
    return held


def _text(path: Path) -> str:
    try:
        data = read_bounded(path, _MOST_BYTES)
    except OSError:
        return ""
    return data.decode(errors="replace").replace("\0", "")
