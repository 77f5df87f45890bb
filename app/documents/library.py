"""The files of a folder, and an index of their passages in which questions are looked up."""

import hashlib
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.documents.document import fault_of, read
from app.documents.folders import Entry, listed
from app.documents.passages import Passage, split
from backends.base.safe_files import make_private_folder, private_opener
from backends.chat.message import whole_characters

MOST_TEXT = 64_000_000
"""Characters of an index, which takes about as many bytes again."""

_VERSION = 2
_TABLES = """
CREATE TABLE files (
    number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, path TEXT NOT NULL,
    size INTEGER NOT NULL, changed INTEGER NOT NULL, digest BLOB NOT NULL,
    characters INTEGER NOT NULL, bytes INTEGER NOT NULL, fault TEXT NOT NULL
);
CREATE TABLE passages (
    number INTEGER PRIMARY KEY, file INTEGER NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, page INTEGER NOT NULL, heading TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX passages_by_file ON passages (file, number);
CREATE TABLE vectors (number INTEGER PRIMARY KEY, model TEXT NOT NULL, row BLOB NOT NULL);
CREATE TRIGGER passage_gone AFTER DELETE ON passages BEGIN
    DELETE FROM vectors WHERE number = old.number;
END;
CREATE VIRTUAL TABLE words USING fts5 (
    heading, text, content='', tokenize='porter unicode61 remove_diacritics 2'
);
"""
_BATCH = 20
"""Files that are written together; a question waits no longer than for these."""

_WAIT_SECONDS = 0.2

_EMBEDDED_TOGETHER = 4
"""Passages whose vectors are computed at once: 0.4 s by all-MiniLM-L6-v2 on a thread here, for
which an answer that begins meanwhile shares the processor."""

_Result = TypeVar("_Result")


class Vectors(Protocol):
    """Makes vectors of length 1, of the model `identity`; of a question None if that takes long."""

    @property
    def identity(self) -> str: ...
    def of_passages(self, texts: Sequence[str]) -> NDArray[np.float32]: ...
    def of_question(self, text: str) -> NDArray[np.float32] | None: ...


class Library:
    """The text of the files of a folder or pattern, by name, for any thread.

    name: as folders.listed has it. progress: files that are read of those there are, while they are
    read for the first time. version: changes with the text. faults: why files are left out.
    is_complete: whether all of it was read once. is_changed: set whenever files were read.
    """

    def __init__(self, name: str, file: Path | None = None) -> None:
        """file: where the index is kept; None, or one that another program uses: in memory."""
        self.name = name
        self.progress = 0, 0
        self.version = 0
        self.faults: tuple[str, ...] = ()
        self.is_complete = False
        self._file: Path | None = None
        self._lock, self._refreshing = threading.RLock(), threading.Lock()
        self._database = _opened(None)
        self._vectors: Vectors | None = None
        self._model = ""
        self.is_changed = threading.Event()
        if file is not None:
            self.keep_in(file)

    def keep_in(self, file: Path) -> None:
        """Keep the index in a file from now on; what it holds there already is taken over."""
        with self._lock:
            is_new = not self._database.execute("SELECT 1 FROM files LIMIT 1").fetchone()
            try:
                kept = _opened(file)
                if not is_new:
                    self._database.backup(kept)
            except (OSError, sqlite3.Error):  # a full disk, or another window has it open
                return
            self._database.close()
            self._database, self._file = kept, file
            self.version += 1

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            self._database.close()

    # What it holds

    @property
    def size(self) -> int:
        """Characters of all files."""
        return self._rows("SELECT total(characters) FROM files")[0][0]

    @property
    def tokens(self) -> int:
        """Tokens of all files, at most, more or less."""
        return most_tokens(self._rows("SELECT total(bytes) FROM files")[0][0])

    @property
    def count(self) -> int:
        return self._rows("SELECT count(*) FROM files WHERE characters > 0")[0][0]

    @property
    def passages(self) -> int:
        return self._rows("SELECT count(*) FROM passages")[0][0]

    def texts(self) -> Iterable[tuple[str, str]]:
        """Name and text of each file, in the order of their names."""
        names = self._rows("SELECT number, name FROM files WHERE characters > 0 ORDER BY name")
        for number, name in names:
            parts = self._rows("SELECT text FROM passages WHERE file = ? ORDER BY number", number)
            if parts:  # else it was deleted meanwhile
                yield name, "".join(text for (text,) in parts)

    def path_of(self, name: str) -> Path | None:
        rows = self._rows("SELECT path FROM files WHERE name = ?", name)
        return Path(rows[0][0]) if rows else None

    def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._done(lambda database: database.execute(sql, values).fetchall())

    def _done(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Do something with the index; one that is damaged or full is made again, in memory."""
        try:
            with self._lock, self._database:
                return work(self._database)
        except sqlite3.ProgrammingError:  # it is closed
            raise
        except sqlite3.Error:
            with self._lock:
                if self._file is None:
                    raise
                self.close()
                remove_index(self._file)
                self._database, self._file = _opened(None), None
            self.refresh()
        with self._lock, self._database:
            return work(self._database)

    # Bringing it up to date

    def refresh(self, is_wanted: Callable[[], bool] = lambda: True, wait: float = -1) -> bool:
        """Read what is new or has changed, and forget what is gone; returns whether that is all.

        is_wanted: asked now and then; False ends it early, and the next call goes on. wait: seconds
        for another thread that does the same, at most; -1 for any time.
        """
        if not self._refreshing.acquire(timeout=wait):
            return False
        try:
            return self._refresh(is_wanted)
        finally:
            self._refreshing.release()
            self.is_changed.set()

    def _refresh(self, is_wanted: Callable[[], bool]) -> bool:
        listing = listed(self.name, is_wanted)
        if not is_wanted():
            return False
        stored = "SELECT name, size, changed, digest FROM files"
        known = {name: (size, at, digest) for name, size, at, digest in self._rows(stored)}
        changed = [one for one in listing.entries if known.get(one.name, ())[:2] != _stamp(one)]
        gone = known.keys() - {one.name for one in listing.entries}
        faults = list(listing.faults)
        if gone:
            self._done(lambda database: [_forget(database, name) for name in sorted(gone)])
            self.version += 1
        total = len(listing.entries)
        for start in range(0, len(changed), _BATCH):
            if not is_wanted():
                return False
            self.progress = total - len(changed) + start, total
            room = MOST_TEXT - self.size
            if room <= 0:
                faults.append(f"{self.name} has more than {MOST_TEXT:,} characters of text")
                break
            self._take(changed[start : start + _BATCH], known)
        self.progress = total, total
        told = self._rows("SELECT name, fault FROM files WHERE fault <> '' ORDER BY name")
        self.faults = (*faults, *(f"{name} {fault}" for name, fault in told))
        self.is_complete = True
        return True

    def _take(self, entries: Sequence[Entry], known: Mapping[str, tuple[Any, ...]]) -> None:
        """Read files, and write together those whose text has changed."""
        read_now = [(one, *_text_of(one)) for one in entries]

        def write(database: sqlite3.Connection) -> None:
            for entry, passages, fault in read_now:
                text = "".join(one.text for one in passages)
                data = text.encode()
                digest = hashlib.sha256(data).digest()
                size, changed = _stamp(entry)
                if entry.name in known and known[entry.name][2] == digest and not fault:
                    moved = "UPDATE files SET size = ?, changed = ? WHERE name = ?"
                    database.execute(moved, (size, changed, entry.name))
                    continue
                _forget(database, entry.name)
                row = (entry.name, whole_characters(str(entry.path)), size, changed, digest)
                added = "INSERT INTO files VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)"
                number = database.execute(added, (*row, len(text), len(data), fault)).lastrowid
                for one in passages:
                    place = (number, one.start, one.end, one.page, one.heading, one.text)
                    put = "INSERT INTO passages VALUES (NULL, ?, ?, ?, ?, ?, ?)"
                    rowid = database.execute(put, place).lastrowid
                    _index(database, rowid, one)

        self._done(write)
        self.version += 1

    def embed(self, vectors: Vectors | None, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Compute the vectors of passages that have none, and forget those of other models.

        Raises:
            SpecchatError: they cannot be computed.
        """
        model = vectors.identity if vectors is not None else ""
        gone = "DELETE FROM vectors WHERE model <> ?"
        self._done(lambda database: database.execute(gone, (model,)))
        self._vectors, self._model = vectors, model
        without = "number NOT IN (SELECT number FROM vectors) LIMIT ?"
        find = f"SELECT number, text FROM passages WHERE {without}"
        # A number may be another passage's by now.
        put = "INSERT INTO vectors SELECT number, ?, ? FROM passages WHERE number = ? AND text = ?"
        is_new = False
        while vectors and is_wanted() and (texts := self._rows(find, _EMBEDDED_TOGETHER)):
            rows = vectors.of_passages([text for _, text in texts]).astype(np.float16)
            values = [(model, row.tobytes(), *one) for row, one in zip(rows, texts, strict=True)]
            self._done(lambda database, values=values: database.executemany(put, values))
            is_new = True
        self.version += is_new

    # Looking up

    def search(
        self,
        question: str,
        tokens: int,
        previous: str = "",
        is_known: Callable[[Passage], bool] = lambda _: False,
    ) -> list[Passage]:
        """The passages that a question is likeliest about, in the order of the files.

        tokens: of all that are returned, at most. previous: the question before, which a short one
        may go on from. is_known: those that are left out, as they were found before.
        """
        ranks: dict[int, float] = {}
        own, before = _terms(question), _terms(previous)
        for weight, query in (
            (1.0, " OR ".join(own)),
            (_STEMS, " OR ".join(_stems(own))),
            (_BEFORE, " OR ".join([*own, *before]) if before else ""),
        ):
            ranked = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY bm25(words, 2.0, 1.0)"
            found = self._rows(f"{ranked} LIMIT {_MOST_RANKED}", query) if query else []
            for place, (number,) in enumerate(found):
                ranks[number] = ranks.get(number, 0.0) + weight / (_RANKS + place)
        asked = question if len(own) >= _ENOUGH_TERMS else f"{previous} {question}".strip()
        for place, number in enumerate(self._nearest(asked) if own or before else []):
            ranks[number] = ranks.get(number, 0.0) + _MEANING / (_RANKS + place)
        best = sorted(ranks, key=lambda number: (-ranks[number], number))
        chosen: list[tuple[int, Passage]] = []
        for number in best or self._openings():
            passage = self._passage(number)
            if passage is not None and passage.text.strip():
                tokens -= most_tokens(len(passage.text.encode()))
                if tokens < 0:
                    break
                if is_known(passage):
                    continue
                chosen.append((number, passage))
        chosen.sort(key=lambda one: (one[1].path, one[0]))
        return [passage for _, passage in chosen]

    def _nearest(self, question: str) -> list[int]:
        """The passages most like a question; all are compared, 25,000 of 384 numbers in 50 ms."""
        vector = self._vectors.of_question(question) if self._vectors is not None else None
        if vector is None:
            return []
        rows = self._rows("SELECT number, row FROM vectors WHERE model = ?", self._model)
        joined = np.frombuffer(b"".join(row for _, row in rows), np.float16)
        likeness = joined.reshape(-1, vector.size).astype(np.float32) @ vector
        return [rows[place][0] for place in np.argsort(-likeness, kind="stable")[:_MOST_NEAREST]]

    def _openings(self) -> list[int]:
        """The first passage of each file: what a question is about that has no words of its own."""
        first = "SELECT min(passages.number) FROM passages JOIN files ON file = files.number"
        rows = self._rows(f"{first} GROUP BY file ORDER BY name LIMIT {_MOST_RANKED}")
        return [number for (number,) in rows]

    def _passage(self, number: int) -> Passage | None:
        columns = "name, first, last, page, heading, passages.text"
        sql = f"SELECT {columns} FROM passages JOIN files ON file = files.number"
        rows = self._rows(f"{sql} WHERE passages.number = ?", number)
        return Passage(*rows[0]) if rows else None


def most_tokens(size: int) -> int:
    """Tokens of a text of so many bytes in UTF-8, at most, more or less.

    English has about four bytes a token; code, other languages and Chinese characters about three.
    """
    return size // 3 + 1


def remove_index(file: Path) -> None:
    for name in (file.name, f"{file.name}-journal"):
        with suppress(OSError):
            file.with_name(name).unlink(missing_ok=True)


def _opened(file: Path | None) -> sqlite3.Connection:
    """Open an index; one that is damaged, or of another version, is made again.

    Raises:
        OSError, sqlite3.Error: it cannot be written, or another program uses it.
    """
    if file is not None:
        make_private_folder(file.parent)
        with suppress(FileExistsError), open(file, "xb", opener=private_opener):
            pass
    try:
        return _connected(file)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        assert file is not None
        remove_index(file)
        return _opened(file)


def _connected(file: Path | None) -> sqlite3.Connection:
    database = sqlite3.connect(file or ":memory:", timeout=_WAIT_SECONDS, check_same_thread=False)
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA synchronous = OFF")  # it can be made again
        database.execute("PRAGMA secure_delete = ON")
        ((version,),) = database.execute("PRAGMA user_version").fetchall()
        if version == 0:
            database.executescript(f"BEGIN; {_TABLES}; PRAGMA user_version = {_VERSION}; COMMIT")
        elif version != _VERSION:
            raise sqlite3.DatabaseError("another version wrote it")
        database.execute("BEGIN IMMEDIATE")
        database.execute("COMMIT")
        if database.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
            raise sqlite3.DatabaseError("it is malformed")
    except BaseException:
        database.close()
        raise
    return database


def _stamp(entry: Entry) -> tuple[int, int]:
    return entry.size, entry.changed


def _text_of(entry: Entry) -> tuple[list[Passage], str]:
    """The passages of a file, and why it has none."""
    try:
        document = read(entry.path)
    except (OSError, RuntimeError, ValueError) as error:
        return [], fault_of(error)
    text = whole_characters(document.text).replace("\0", "")
    return split(replace(document, text=text), whole_characters(entry.name)), ""


def _index(database: sqlite3.Connection, number: int | None, one: Passage) -> None:
    words = _separate(f"{one.path} {one.heading}"), _separate(one.text)
    database.execute("INSERT INTO words (rowid, heading, text) VALUES (?, ?, ?)", (number, *words))


def _forget(database: sqlite3.Connection, name: str) -> None:
    found = "SELECT passages.number, heading, passages.text FROM passages"
    rows = database.execute(
        f"{found} JOIN files ON file = files.number WHERE name = ?", (name,)
    ).fetchall()
    for number, heading, text in rows:
        words = _separate(f"{name} {heading}"), _separate(text)
        gone = "INSERT INTO words (words, rowid, heading, text) VALUES ('delete', ?, ?, ?)"
        database.execute(gone, (number, *words))
    of_name = "SELECT number FROM files WHERE name = ?"
    database.execute(f"DELETE FROM passages WHERE file IN ({of_name})", (name,))
    database.execute("DELETE FROM files WHERE name = ?", (name,))


# Words of a question

_MOST_RANKED = 200
_RANKS = 60
"""Of reciprocal rank fusion, as its authors have it (Cormack, Clarke and Buettcher, 2009)."""

_STEMS, _BEFORE = 0.5, 0.5
"""Weights of words that only begin alike, and of the words of the question before. Guesses."""

_MEANING, _MOST_NEAREST = 1.5, 10
"""Weight of vectors, as much as both lists of words, and how many of the nearest passages count:
about those that a question takes. All of the sixteen questions in other words than their passages
find them with all-MiniLM-L6-v2, twelve without (scripts/measure_vectors.py)."""

_ENOUGH_TERMS = 4
"""Words from which on the meaning of a question is its own; of fewer, also that of the one before.
A guess."""

_MOST_TERMS = 60
_STEM = 5
"""Letters that a word begins with which others of its family have, in languages that the porter
stemmer does not know."""

_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff])"
)
"""Characters of scripts without spaces between words, each of which is indexed as a word."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_STOP_WORDS = """
a about after all also am an and any are as at be been before being but by can could did do does
for from get had has have how i if in into is it its just let me my no not of on one or our out
please say says she should so some such tell than that the their them then there these they this
to us was we were what when where which who whom whose why will with would you your
aber als am an auch auf aus bei bin bis bitte da das dass dem den der des die dies diese dieser
du ein eine einem einen einer eines er es hat haben ich ihr im in ist kann man mit muss nach
nicht noch nur oder sich sie sind so um und uns von vor wann war was welche welchem welchen
welcher welches wenn wer wie wieso wir wird wo woher wohin warum zu zum zur
au aux avec ce ces cette comment dans de des du elle en est et il ils je la le les leur lui mais
mon ne nous ou par pas pour pourquoi qu quand que quel quelle quelles quels qui quoi sa se ses
son sont sur un une vous
como con cual cuando de del donde el ella en es la las lo los mi no o para pero por que quien se
si su sus un una y
"""
_STOP = frozenset(_STOP_WORDS.split())
"""Words that tell nothing about the place of an answer; in few passages each would seem rare."""


def _separate(text: str) -> str:
    """A text whose words stand apart: of scripts without spaces, and of names in code."""
    return _CAMEL.sub(" ", _UNSPACED.sub(r"\1 ", text))


def _terms(question: str) -> list[str]:
    """What is looked up of a question, each as a phrase of FTS5; nothing in it is an operator."""
    terms: dict[str, None] = {}
    spaced = _CAMEL.sub(" ", question)
    for run in re.findall(r"\w+", spaced.replace("_", " ")):
        parts = [part for part in _UNSPACED.split(run) if part]
        single = [part for part in parts if _UNSPACED.fullmatch(part)]
        for word in parts:
            if word not in single and word.lower() not in _STOP:
                terms[f'"{word.lower()}"'] = None
        for pair in pairwise(single):
            terms['"{} {}"'.format(*pair)] = None
        if len(single) == 1:
            terms[f'"{single[0]}"'] = None
    return list(terms)[:_MOST_TERMS]


def _stems(terms: Sequence[str]) -> list[str]:
    """What words begin with, for those of other endings; short ones as they are."""
    words = [term[1:-1] for term in terms]
    return [f'"{word[: max(_STEM, len(word) - 4)]}"*' for word in words if " " not in word]
