"""What a question is sent along with: files whole, of folders and long files what fits."""

import math
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from app.chat.attachments import Attachment, AttachmentKind, Attachments
from app.chat.conversation import most_of_prompt
from app.chat.named_files import names_in
from app.chat.read_all import is_of_reading
from app.chat.sources import Source, sources_of
from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import USER, Turn
from app.documents.folders import is_file, is_folder, root_of
from app.documents.library import Library, most_tokens, remove_index
from app.history.store import index_of
from app.loading.embedding import Embedding
from app.paths import Paths
from app.settings.catalogue import EMBEDDING_MODEL
from app.settings.in_effect import settings_in_effect
from app.wording import SEPARATOR, counted
from backends.base import SpecchatError, UsageError
from backends.hardware.host import physical_cores
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


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that is to be answered, or is typed.

    dialogue: the chat, whose folder it is about too. files: those that it names, as they were read.
    before: the turns that it follows. n_ctx: tokens of the context; None: no model is loaded.
    """

    dialogue: Dialogue
    text: str
    files: Attachments = ()
    before: Sequence[Turn] = ()
    n_ctx: int | None = None

    def split(self) -> tuple[Attachments, list[str], int]:
        """Files that fit the context whole, the names of others, and the tokens of the former."""
        room = math.inf if self.n_ctx is None else int(self.n_ctx * FILES_SHARE)
        kept, long, taken = list[Attachment](), list[str](), 0
        for one in self.files:
            tokens = _tokens(one.text) if one.kind is AttachmentKind.FILE else 0
            if taken + tokens > room and is_file(one.name):
                long.append(one.name)
            else:
                taken += tokens
                kept.append(one)
        return tuple(kept), long, taken

    def named(self) -> list[str]:
        """The folders, patterns and long files that it names."""
        folders = filter(is_folder, names_in(self.text)) if "@" in self.text else ()
        return [*folders, *self.split()[1]]


@lru_cache(16)
def _tokens(text: str) -> int:
    return most_tokens(len(text.encode()))


@lru_cache(256)
def _named_before(text: str, attached: frozenset[str]) -> tuple[str, ...]:
    """Folders and patterns that a question named, and files of which it was sent passages."""
    whole = {name.partition(", page ")[0] for name in attached}
    names = names_in(text) if "@" in text else ()
    return tuple(one for one in names if is_folder(one) or (is_file(one) and one not in whole))


def _attached(
    libraries: Sequence[Library], asked: Asked, taken: int
) -> tuple[list[Attachment], list[str]]:
    """What a question is sent along with of folders, and of which of them no passage fits.

    It is all of a small one, or passages; they leave room for the question and an answer.
    A file that the model has read goes in again only once it has changed, and a passage never.
    taken: tokens of what goes in beside them.
    """
    n_ctx = asked.n_ctx or _SMALLEST_CONTEXT
    free = most_of_prompt(n_ctx) - taken - _tokens(asked.text)
    whole = min(int(n_ctx * WHOLE_SHARE) - taken, free)
    room = min(int(n_ctx * PASSAGES_SHARE), MOST_PASSAGES, free)
    read = [one for turn in asked.before[asked.dialogue.dropped :] for one in turn.attachments]
    texts = {one.name: one.text for one in read if one.kind is AttachmentKind.FILE}
    known = sources_of(read).values()
    passages = {(one.place, one.text) for one in known}
    number = max(sources_of(one for turn in asked.before for one in turn.attachments), default=0)
    previous = next((turn.text for turn in reversed(asked.before) if turn.role == USER), "")
    found, unread = list[Attachment](), list[str]()
    for library in libraries:
        if library.is_complete and (tokens := library.tokens) <= whole:
            whole, free = whole - tokens, free - tokens
            room = min(room, free)
            for name, text in library.texts():
                if texts.get(name) != text:
                    found.append(Attachment(AttachmentKind.FILE, name, text))
            continue
        fitting = library.search(
            asked.text, room, previous, lambda one: (one.place, one.text) in passages
        )
        count = library.passages
        if count and not fitting and not any(library.path_of(one.path) for one in known):
            was = "was" if count == 1 else "were"
            unread.append(f"none of {counted(count, 'passage')} of {_shown(library)} {was} read")
        for one in fitting:
            number += 1
            room -= most_tokens(len(one.text.encode()))
            found.append(Attachment(AttachmentKind.PASSAGE, f"[{number}] {one.place}", one.text))
    return found, unread


class _Reader:
    """Reads a folder in a thread of its own, and again what changes there if it is watched."""

    def __init__(
        self,
        name: str,
        vectors: Embedding | None,
        file: Path | None = None,
        *,
        is_watched: bool = False,
    ) -> None:
        """vectors: computed in another thread, once all words are there, between answers."""
        self.library = Library(name)
        self.is_read = threading.Event()
        """Whether all of it has been read once."""
        self._file, self._is_watched = file, is_watched
        self._is_over, self._vectors = threading.Event(), vectors
        for work in (self._run, self._embed):
            threading.Thread(target=work, name="folder", daemon=True).start()

    def stop(self) -> None:
        self._is_over.set()
        self.library.is_changed.set()

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

    def _embed(self) -> None:
        _give_way()
        with suppress(SpecchatError, sqlite3.ProgrammingError):  # told; or the chat was left
            self.is_read.wait()
            while self.library.is_changed.wait() and self.is_wanted():
                self.library.is_changed.clear()
                self.library.embed(self._vectors, self.is_wanted)


def _give_way() -> None:
    """Let the model's threads go first, where a thread can have a priority of its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


class Libraries:
    """The folders and long files of the chat that is shown, each read once it is needed.

    A chat's own folder is watched. paths: where the index of that is kept; None: in memory.
    vectors: of the passages; closed with this.
    """

    def __init__(self, paths: Paths | None = None, vectors: Embedding | None = None) -> None:
        self._paths, self._vectors = paths, vectors
        self._lock = threading.RLock()
        self._folder = ""
        self._chat: int | None = None
        self._own: _Reader | None = None
        self._named: dict[str, _Reader] = {}
        self._searched: Library | None = None
        """What the last passages were found in."""
        self._told: set[str] = set()
        self.unread: dict[tuple[str, str], str] = {}
        """Of what no passage fitted, by the chat's folder and the question."""

    def _follow(self, folder: str, chat: int | None) -> None:
        """Have a chat's own folder read; its index is kept once the chat has a number."""
        if folder != self._folder or (chat != self._chat and self._chat is not None):
            self._searched = None
            if self._own is not None:
                self._own.stop()
            file = self._index(chat)
            if file is not None and not folder:
                remove_index(file)
            self._own = _Reader(folder, self._vectors, file, is_watched=True) if folder else None
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

    @property
    def documents(self) -> Callable[[], Iterable[tuple[str, str]]] | None:
        """Reads what an answer may quote although it is not all in its prompt, as in Request."""
        library = self.own or self._searched
        return library.texts if library is not None else None

    def about(self, asked: Asked) -> str:
        """The folders and long files that a question names, with what is in them."""
        libraries = [one.library for one in self._of(asked, asked.named())]
        return SEPARATOR.join(
            f"{one.name} · {counted(one.count, 'file')} · {size_text(one.size)}"
            if one.is_complete
            else progress_of(one)
            for one in libraries
        )

    def close(self) -> None:
        with self._lock:
            for reader in (*self._named.values(), *([self._own] if self._own else [])):
                reader.stop()
        if self._vectors is not None:
            self._vectors.close()

    def _of(self, asked: Asked, names: Iterable[str]) -> list[_Reader]:
        """What reads folders and files of these names, and begins to."""
        with self._lock:
            self._follow(asked.dialogue.folder, asked.dialogue.chat)
            names = [*dict.fromkeys(names)][:_MOST_NAMED]
            for name in names:
                known = self._named.pop(name, None)
                self._named[name] = known or _Reader(name, self._vectors)
            while len(self._named) > _MOST_NAMED:
                self._named.pop(next(iter(self._named))).stop()
            return [self._named[name] for name in names]

    def _readers(self, asked: Asked, *, of_all: bool = False) -> list[_Reader]:
        """What a question is answered from: the chat's folder, what it names, and earlier ones.

        Of earlier ones only those count that were answered from a part of what they named, unless
        of_all.
        """
        names = asked.named()
        for turn in reversed(asked.before):
            if not (attached := turn.attachments):
                continue
            part = (one.kind is AttachmentKind.PASSAGE or is_of_reading(one) for one in attached)
            if of_all or any(part):
                names += _named_before(turn.text, frozenset(one.name for one in attached))
        named = self._of(asked, names)
        return [*([self._own] if self._own is not None else []), *named]

    def state(self, asked: Asked) -> tuple[object, ...]:
        """Changes with what `found` would find; empty where no folder is concerned."""
        return tuple((id(one), one.library.version) for one in self._readers(asked))

    def found(self, asked: Asked, seconds: float | None = None) -> tuple[Attachments, list[str]]:
        """What a question is sent along with, and what is to be told once, each in a few words.

        seconds: to wait for files that are new or have changed; None: what is known is taken, of
        folders that have been read.
        """
        readers, told = self._readers(asked), list[str]()
        files, _, taken = asked.split()
        if seconds is None:
            libraries = [one.library for one in readers if one.library.is_complete]
        else:
            libraries = [one.library for one in readers]
            for reader in readers:
                if not reader.update(seconds):
                    told.append(f"{progress_of(reader.library)}: only that was searched")
            faults = [fault for library in libraries for fault in library.faults]
            faults += [self._vectors.fault] if self._vectors and self._vectors.fault else []
            told += [fault for fault in faults if fault not in self._told]
            self._told.update(faults)
        try:
            found, unread = _attached(libraries, asked, taken)
        except sqlite3.ProgrammingError:  # the chat was left meanwhile
            return files, []
        if any(one.kind is AttachmentKind.PASSAGE for one in found):
            self._searched = libraries[-1]
        if seconds is not None:
            self.unread.pop(key := (asked.dialogue.folder, asked.text), None)
            if unread:
                remedy = "no room is left for one; shorten the question, or use a larger --ctx"
                self.unread[key] = f"{', '.join(unread)}: {remedy}"
                told.append(self.unread[key])
        return (*files, *found), told

    def all_of(self, asked: Asked, seconds: float) -> dict[str, str]:
        """All that a question and those before it may be answered from: texts by name.

        Raises:
            UsageError: a folder is not read after so many seconds.
        """
        turns = [one for turn in asked.before for one in turn.attachments]
        files = [one for one in (*turns, *asked.split()[0]) if one.kind is AttachmentKind.FILE]
        found = {one.name: one.text for one in files if not is_of_reading(one)}
        for reader in self._readers(asked, of_all=True):
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

    def searched(self, sources: Iterable[Source]) -> int:
        """How many passages there are where these are of; 0 while they are not all known."""
        names = {one.path for one in sources}
        of = [one for one in self._known if any(map(one.path_of, names))]
        return sum(one.passages for one in of) if all(one.is_complete for one in of) else 0


def vectors_of(paths: Paths, is_free: Callable[[], bool]) -> Embedding | None:
    """The embedding model of the settings, if any. is_free: whether passages may be embedded."""
    name = settings_in_effect(paths).values.get(EMBEDDING_MODEL)
    threads = max(1, physical_cores() // 2)
    return Embedding(str(name), paths, threads, is_free=is_free) if name else None


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
