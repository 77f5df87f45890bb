"""Folders that questions are answered with: a chat's own, and those that a question names."""

import math
import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.named_files import is_file, names_in
from app.dialogue.tree import USER, Turn
from app.documents.folders import is_folder, root_of
from app.documents.library import Library, most_tokens, remove_index
from app.documents.passages import Passage
from app.history.store import index_of
from app.paths import Paths
from app.wording import SEPARATOR, counted
from backends.base import UsageError
from models.byte_sizes import size_text

FILES_SHARE = 0.8
"""Of the context, that the files which a question names may take as a whole; of longer ones, whose
tokens are estimated high, passages are read."""

WHOLE_SHARE = 0.5
"""Of the context, that folders may take as a whole: the talk and the answer need the other half."""

PASSAGES_SHARE = 0.25
MOST_PASSAGES = 3_000
"""Of the context, and in tokens, that the passages of one question may take. Of fifty questions
nine in ten find theirs in 2,000 tokens, and no more do in 3,000 (tests/app/documents)."""

_SMALLEST_CONTEXT = 4096
"""Taken for the context while no model is loaded."""

_MOST_NAMED = 4
"""Folders named in messages whose indexes are kept in memory."""

_NUMBER = re.compile(r"\[(\d+)\] ")


@dataclass(frozen=True, slots=True)
class Talk:
    """What a question follows. known: attachments that the model still reads, oldest first.

    last: the highest number of a passage. previous: the question before.
    """

    known: tuple[Attachment, ...] = ()
    last: int = 0
    previous: str = ""

    @classmethod
    def of(cls, turns: Sequence[Turn], dropped: int = 0) -> "Talk":
        """dropped: how many of the first turns no longer fit the context."""
        attached = [one for turn in turns for one in turn.attachments]
        known = tuple(one for turn in turns[dropped:] for one in turn.attachments)
        questions = [turn.text for turn in turns if turn.role == USER]
        return cls(known, last_number(attached), questions[-1] if questions else "")


def last_number(attachments: Iterable[Attachment]) -> int:
    numbers = [_NUMBER.match(one.name) for one in attachments if one.kind is AttachmentKind.PASSAGE]
    return max((int(found[1]) for found in numbers if found is not None), default=0)


def attachments_of(
    libraries: Sequence[Library], question: str, talk: Talk, n_ctx: int | None, taken: int = 0
) -> tuple[Attachment, ...]:
    """What a question is sent along with of folders: all of a small one, or passages.

    A file that the model has read goes in again only once it has changed, and a passage never.
    taken: tokens of what goes in beside them.
    """
    n_ctx = n_ctx or _SMALLEST_CONTEXT
    whole = int(n_ctx * WHOLE_SHARE) - taken
    room = min(int(n_ctx * PASSAGES_SHARE), MOST_PASSAGES)
    texts = {one.name: one.text for one in talk.known if one.kind is AttachmentKind.FILE}
    passages = {
        (_NUMBER.sub("", one.name, count=1), one.text)
        for one in talk.known
        if one.kind is AttachmentKind.PASSAGE
    }

    def is_known(one: Passage) -> bool:
        return (one.place, one.text) in passages

    found: list[Attachment] = []
    number = talk.last
    for library in libraries:
        if library.is_complete and (tokens := library.tokens) <= whole:
            whole -= tokens
            for name, text in library.texts():
                if texts.get(name) != text:
                    found.append(Attachment(AttachmentKind.FILE, name, text))
            continue
        for one in library.search(question, room, talk.previous, is_known):
            number += 1
            room -= most_tokens(len(one.text.encode()))
            found.append(Attachment(AttachmentKind.PASSAGE, f"[{number}] {one.place}", one.text))
    return tuple(found)


class _Reader:
    """Reads a folder in a thread of its own, and again what changes there if it is watched."""

    def __init__(self, name: str, file: Path | None = None, *, is_watched: bool = False) -> None:
        self.library = Library(name)
        self.is_read = threading.Event()
        """Whether all of it has been read once."""
        self._file, self._is_watched = file, is_watched
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="folder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()

    def is_wanted(self) -> bool:
        return not self._is_over.is_set()

    def update(self, seconds: float) -> bool:
        """Take over what has changed; False if that is not done within so many seconds."""
        end = time.monotonic() + seconds
        if not self.is_read.wait(None if math.isinf(seconds) else seconds):
            return False
        wait = -1 if math.isinf(seconds) else max(0.0, end - time.monotonic())
        return self.library.refresh(lambda: time.monotonic() < end and self.is_wanted(), wait)

    def _run(self) -> None:
        _give_way()
        try:
            if self._file is not None:
                self.library.keep_in(self._file)
            if self.library.refresh(self.is_wanted):
                self.is_read.set()
            if self._is_watched and self.is_wanted():
                self._watch()
        finally:
            self.is_read.set()
            self._is_over.wait()
            self.library.close()

    def _watch(self) -> None:
        """Read again what changes; where the system cannot tell, it is seen with a question."""
        from watchfiles import watch

        with suppress(OSError, RuntimeError):
            for _ in watch(root_of(self.library.name), stop_event=self._is_over):
                self.library.refresh(self.is_wanted)


def _give_way() -> None:
    """Let the model's threads go first, where a thread can have a priority of its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


class Libraries:
    """The folders of the chat that is shown, each read and watched once it is needed.

    paths: where the index of a chat's folder is kept; None: in memory.
    """

    def __init__(self, paths: Paths | None) -> None:
        self._paths = paths
        self._folder = ""
        self._chat: int | None = None
        self._own: _Reader | None = None
        self._named: dict[str, _Reader] = {}
        self._long: set[str] = set()
        """Files that are too long to be read whole."""
        self._searched: dict[str, None] = {}
        """Folders and files that a question of this chat named; later ones are about them too."""
        self._told: set[str] = set()

    def follow(self, folder: str, chat: int | None = None) -> None:
        """Have a chat's own folder read; its index is kept once the chat has a number."""
        if folder != self._folder or (chat != self._chat and self._chat is not None):
            self._searched.clear()
            if self._own is not None:
                self._own.stop()
            file = self._index(chat)
            if file is not None and not folder:
                remove_index(file)
            self._own = _Reader(folder, file, is_watched=True) if folder else None
        elif chat != self._chat and self._own is not None and (file := self._index(chat)):
            keep_in = self._own.library.keep_in
            threading.Thread(target=keep_in, args=[file], daemon=True).start()
        self._folder, self._chat = folder, chat

    def _index(self, chat: int | None) -> Path | None:
        return index_of(self._paths, chat) if self._paths is not None and chat is not None else None

    @property
    def own(self) -> Library | None:
        """The chat's own folder, which may still be read."""
        return self._own.library if self._own is not None else None

    @property
    def words(self) -> str:
        """The chat's own folder, and how much of it is read if that is not all; empty for none."""
        library = self.own
        if library is None:
            return ""
        return _shown(library) if library.is_complete else progress_of(library)

    def about(self, text: str) -> str:
        """The folders that a message names, with what is in them."""
        libraries = [one.library for one in self.named(text).values()]
        return SEPARATOR.join(
            f"{one.name} · {counted(one.count, 'file')} · {size_text(one.size)}"
            if one.is_complete
            else progress_of(one)
            for one in libraries
        )

    def close(self) -> None:
        for reader in (*self._named.values(), *([self._own] if self._own else [])):
            reader.stop()

    def named(self, text: str) -> dict[str, _Reader]:
        """The folders, patterns and long files that a message names, which begin to be read."""
        if "@" not in text:
            return {}
        names = [name for name in names_in(text) if name in self._long or is_folder(name)]
        del names[_MOST_NAMED:]
        for name in names:
            known = self._named.pop(name, None)
            self._named[name] = known or _Reader(name)
        while len(self._named) > _MOST_NAMED:
            self._named.pop(next(iter(self._named))).stop()
        return {name: self._named[name] for name in names}

    def state(self, text: str) -> tuple[object, ...]:
        """Changes with what `found` would find for a text."""
        readers = self._of(text)
        return tuple((id(one), one.library.version) for one in readers)

    def _of(self, text: str) -> list[_Reader]:
        own = [self._own] if self._own is not None else []
        named = self.named(text)
        before = (self._named[one] for one in self._searched if one in self._named.keys() - named)
        return [*own, *named.values(), *before]

    def found(
        self,
        text: str,
        talk: Talk,
        n_ctx: int | None,
        seconds: float | None = None,
        files: Sequence[Attachment] = (),
    ) -> tuple[tuple[Attachment, ...], list[str]]:
        """What a question is sent along with, and what is to be told once, each in a few words.

        files: what it brings itself; long files of these are searched as folders are. seconds: to
        wait for files that are new or have changed; None: what is known is taken, of folders that
        have been read.
        """
        files, taken = self._short(files, n_ctx)
        readers, told = self._of(text), list[str]()
        if seconds is None:
            libraries = [one.library for one in readers if one.library.is_complete]
        else:
            libraries = [one.library for one in readers]
            for reader in readers:
                if not reader.update(seconds):
                    told.append(f"{progress_of(reader.library)}: only that was searched")
            faults = [fault for library in libraries for fault in library.faults]
            told += [fault for fault in faults if fault not in self._told]
            self._told.update(faults)
        try:
            found = attachments_of(libraries, text, talk, n_ctx, taken)
            if seconds is not None and any(one.kind is AttachmentKind.PASSAGE for one in found):
                self._searched.update(dict.fromkeys(self.named(text)))
            return (*files, *found), told
        except sqlite3.ProgrammingError:  # the chat was left meanwhile
            return files, []

    def _short(
        self, files: Sequence[Attachment], n_ctx: int | None
    ) -> tuple[tuple[Attachment, ...], int]:
        """Files that fit the context whole, with their tokens; the others become libraries."""
        room = math.inf if n_ctx is None else int(n_ctx * FILES_SHARE)
        kept, taken = list[Attachment](), 0
        for one in files:
            tokens = most_tokens(len(one.text.encode())) if one.kind is AttachmentKind.FILE else 0
            if taken + tokens > room and is_file(one.name):
                self._long.add(one.name)
                continue
            self._long.discard(one.name)
            taken += tokens
            kept.append(one)
        return tuple(kept), taken

    def texts(self, text: str, seconds: float) -> dict[str, str]:
        """All that the folders of a message hold, by name.

        Raises:
            UsageError: one of them is not read after so many seconds.
        """
        found: dict[str, str] = {}
        for reader in self._of(text):
            if not reader.update(seconds):
                raise UsageError(progress_of(reader.library), "", "Try again once all of it is.")
            found.update(reader.library.texts())
        return found

    @property
    def _known(self) -> list[Library]:
        readers = [*([self._own] if self._own else []), *self._named.values()]
        return [one.library for one in readers]

    def path_of(self, name: str) -> Path | None:
        """Where a file of these folders is."""
        return next(filter(None, (one.path_of(name) for one in self._known)), None)

    def searched(self, names: Iterable[str]) -> int:
        """Passages of the folders that files are of; 0 while they are not all known."""
        of = [one for one in self._known if any(map(one.path_of, names))]
        return sum(one.passages for one in of) if all(one.is_complete for one in of) else 0


def read_now(name: str) -> Library:
    """All of a folder.

    Raises:
        UsageError: there is no such folder.
    """
    library = Library(folder_path(name))
    library.refresh()
    return library


def folder_path(name: str) -> str:
    """The full path of a folder, or of a long file, that a chat is to have.

    Raises:
        UsageError: there is none.
    """
    name = name.strip('"')
    if not is_folder(name) and not is_file(name) and name not in (".", ".."):
        raise UsageError(f"no folder {name}", "", "Example: /folder notes")
    return os.path.abspath(Path(name).expanduser())


def progress_of(library: Library) -> str:
    """How much of a folder is read, such as "notes is read to 34 %"."""
    done, total = library.progress
    return f"{_shown(library)} is read to {100 * done // total if total else 0} %"


def _shown(library: Library) -> str:
    path = Path(library.name)
    return path.name if path.is_absolute() else library.name
