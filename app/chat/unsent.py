"""Keeps what was typed and not sent, for the next start or after a crash.

Each running app has its own file and lock, which the system releases when the process ends. A file
whose lock is free was left by an earlier app, and its text can be taken over. Pastes follow the
text as JSON, after a character that no text has.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from app.chat.attachments import Attachment, as_json, from_json
from app.paths import Paths
from app.values import items
from backends.base.safe_files import make_private_folder, read_bounded, write_whole
from models.bounded_files import change_object, read_object

_MOST_BYTES = 64 << 20
_END_OF_TEXT = "\0"

Draft = tuple[str, tuple[Attachment, ...]]
"""A text and the pastes folded in it."""


@dataclass(frozen=True, slots=True)
class _LockedFile:
    path: Path
    lock: BaseFileLock
    text: str


class ComposerDraft:
    """The unsent text of this app.

    left: the unsent texts of earlier apps. attachments: the pastes folded in them, in order.
    """

    def __init__(self, paths: Paths) -> None:
        self._writing = Lock()
        self._latest: Draft = ("", ())
        self._written = self.left = ""
        self.attachments: tuple[Attachment, ...] = ()
        self._own: _LockedFile | None = None
        self._others: list[_LockedFile] = []
        self._first = paths.unsent
        with suppress(OSError):
            make_private_folder(paths.data)
            self._take_over(_locked(paths.unsent))

    def keep(self, text: str, attachments: Sequence[Attachment] = ()) -> None:
        """Write a text and the pastes folded in it to the file, if possible."""
        self._latest = text, tuple(attachments)
        self._write()

    def keep_soon(self, text: str, attachments: Sequence[Attachment] = ()) -> None:
        """Write a text and the pastes folded in it to the file in the background."""
        latest = text, tuple(attachments)
        if latest != self._latest:  # quick: unchanged pastes are the same objects
            self._latest = latest
            Thread(target=self._write, name="composer draft", daemon=True).start()

    def close(self) -> None:
        for file in (*self._others, *([self._own] if self._own else [])):
            file.lock.release()

    def _take_over(self, locked: list[_LockedFile]) -> None:
        """Collect all texts in the first file; the others are deleted once it has them."""
        if not locked:
            return
        self._own, *self._others = locked
        self._written = self._own.text
        drafts = [_split(file.text) for file in locked if file.text.strip()]
        self.left = "\n\n".join(text for text, _ in drafts)
        self.attachments = tuple(one for _, attachments in drafts for one in attachments)
        self.keep(self.left, self.attachments)

    def _claim(self) -> _LockedFile | None:
        """Lock a file of no earlier app's text, once the folder can be written."""
        make_private_folder(self._first.parent)
        for file in _locked(self._first):
            if self._own is None and not file.text:
                self._own = file
            else:
                file.lock.release()
        return self._own

    def _write(self) -> None:
        with self._writing, suppress(OSError):
            own = self._own or self._claim()
            if own is None:
                return
            path = own.path
            latest = _joined(*self._latest)
            if latest != self._written:
                if latest:
                    write_whole(path, latest)
                else:
                    path.unlink(missing_ok=True)
                self._written = latest
            while self._others:
                self._others[-1].path.unlink(missing_ok=True)
                self._others.pop().lock.release()


def _locked(first: Path) -> list[_LockedFile]:
    """Lock the first free file, and all others that earlier apps left."""
    locked: list[_LockedFile] = []
    suffixes = (path.stem.rpartition("-")[2] for path in first.parent.glob(f"{first.stem}-*.txt"))
    left = sorted(int(suffix) for suffix in suffixes if suffix.isdecimal())
    number = 0
    while number := next((one for one in left if one > number), 0) if locked else number + 1:
        path = first if number == 1 else first.with_stem(f"{first.stem}-{number}")
        lock = FileLock(path.with_name(f".{path.name}.lock"), mode=0o600)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            continue
        except (OSError, NotImplementedError):
            if locked:  # no locks on this disk: another app may be using the file
                break
        text = _text(path)
        if text is None:  # too large or unreadable: it stays for whoever can read it
            if not lock.is_locked:  # the folder may not be entered: no other would do either
                break
            lock.release()
            continue
        locked.append(_LockedFile(path, lock, text))
    return locked


def _text(path: Path) -> str | None:
    """The text of a file, empty if there is none; None if it cannot be read."""
    try:
        return read_bounded(path, _MOST_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError:
        return None


def _joined(text: str, attachments: Sequence[Attachment]) -> str:
    text = text.replace(_END_OF_TEXT, "")
    return f"{text}{_END_OF_TEXT}{as_json(attachments)}" if attachments else text


def _split(held: str) -> tuple[str, tuple[Attachment, ...]]:
    """Text and pastes of a file; anything else in it is text."""
    text, _, rest = held.rpartition(_END_OF_TEXT)
    attachments = from_json(rest)
    return (text if attachments else held).replace(_END_OF_TEXT, ""), attachments


_TEXTS = "texts"
_MOST_TEXTS = 20
_MOST_SECONDS = 86_400.0
_LONGEST = 1 << 18
"""Characters of a text that is kept: all are read at the start."""

_Entry = tuple[float, str]
"""When a text was cleared, in seconds since 1970, and the text."""


class ClearedTexts:
    """The last few texts that were cleared within a day; pastes stand in them in full."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def texts(self) -> list[str]:
        """The texts, oldest first; none if the file is missing or damaged."""
        return [text for _, text in _entries(read_object(self._file))]

    def add(self, text: str) -> None:
        def added(held: dict[str, Any]) -> dict[str, Any]:
            others = (entry for entry in _entries(held) if entry[1] != text)
            return {_TEXTS: [*others, (time.time(), text)][-_MOST_TEXTS:]}

        if len(text) <= _LONGEST:
            change_object(self._file, added)


def _entries(held: dict[str, Any]) -> list[_Entry]:
    """Entries of a file's object of the last day; damaged ones are left out."""
    since, entries = time.time() - _MOST_SECONDS, list[_Entry]()
    for row in items(held.get(_TEXTS)):
        match row:
            case [int() | float() as when, str() as text] if when >= since:
                entries.append((when, text))
            case _:
                pass
    return entries
