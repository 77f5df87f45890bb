"""The chat database: one SQLite file, which several programs may use at once."""

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from app.history.chat import Chat, HistoryError, Saved, Version, as_text, title_of
from app.history.repair import BESIDE, is_damage, repair
from app.history.schema import (
    DamagedFileError,
    ForeignFileError,
    NewerSchemaError,
    connected,
    is_odd,
)
from app.history.search import condition
from backends.base.private_file import FILE_MODE, make_private_folder, private_opener
from backends.base.regular_file import NotRegularError
from backends.base.whole_characters import whole_characters

_WAIT_SECONDS = 3.0
_KEPT_SECONDS = 86_400.0
"""How long a removed chat can be restored."""

_LOCK_SECONDS = 60.0
"""Time to wait while another program repairs the file."""

_Result = TypeVar("_Result")

_COLUMNS = """
    chats.number, title, model, system, created, updated,
    (SELECT count(*) FROM messages WHERE chat = chats.number)
"""

_VERSIONS = """
    SELECT chats.number, updated, chats.created, count(*), max(messages.number),
        max(messages.created), total(length(text))
    FROM chats JOIN messages ON chat = chats.number
    WHERE removed IS NULL GROUP BY chats.number ORDER BY updated DESC
"""


class _DamageError(HistoryError):
    """The file is or seems damaged."""


class History:
    """All chats. One thread at a time may use it; each write is a transaction of its own."""

    def __init__(self, path: Path, *, repairs: bool) -> None:
        """Raises HistoryError, as open does."""
        self._path = path
        self._news: list[str] = []
        self._may_repair = repairs
        self._connection = sqlite3.connect(":memory:")
        try:
            self._connect()
        except _DamageError as error:
            self._repair(error)
        self.has_purged = False
        """Whether chats were deleted for good since the file was opened."""
        with suppress(HistoryError):  # another program may be writing; the next start purges
            self.purge()

    @classmethod
    def open(cls, path: Path, *, repairs: bool = True) -> "History":
        """Open or create the file; a damaged one is rebuilt from its readable rows.

        repairs: False leaves a damaged file as it is, which is then an error.

        Raises:
            HistoryError: the file cannot be used.
        """
        return cls(path.absolute(), repairs=repairs)

    def news(self) -> str:
        """Return each message for the user once."""
        news = "; ".join(self._news)
        self._news.clear()
        return news

    def _connect(self) -> None:
        try:
            self._file = _private_file(self._path)
            self._connection = connected(self._path, _WAIT_SECONDS)
        except (ForeignFileError, NewerSchemaError) as error:
            raise HistoryError(f"cannot open the chats in {self._path}", str(error)) from error
        except (DamagedFileError, OSError, sqlite3.Error, UnicodeDecodeError) as error:
            kind = _DamageError if is_damage(error) or is_odd(error) else HistoryError
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise kind(f"cannot open the chats in {self._path}", why) from error

    def _repair(self, error: "_DamageError") -> None:
        """Rebuild the file from its readable rows, unless another program just did.

        Raises:
            HistoryError: error, or why it cannot be repaired.
        """
        from filelock import FileLock, Timeout

        if not self._may_repair:
            raise error
        self._may_repair = False
        self.close()
        lock = FileLock(self._path.with_suffix(".lock"), timeout=_LOCK_SECONDS, mode=FILE_MODE)
        try:
            with lock:
                if os.path.samestat(self._file, self._path.stat()):
                    ours = not is_odd(error.__cause__)
                    report = repair(self._path, _WAIT_SECONDS, is_ours=ours)
                    if not report:
                        raise error
                    self._news.append(report)
                self._connect()
        except (OSError, Timeout, NotImplementedError, sqlite3.Error) as trouble:
            why = f"{error.why}; the file cannot be repaired: {trouble}"
            raise HistoryError(error.what, why) from trouble

    def _healing(self, work: Callable[[], _Result]) -> _Result:
        """Run work and return its result; if the file is damaged, repair it and run work again."""
        try:
            return work()
        except _DamageError as error:
            self._repair(error)
        return work()

    def create(self, model: str, system: str = "", settings: str = "{}") -> int:
        """Create a chat and return its number. settings: those of this chat, a JSON object."""
        now = time.time()
        row = (model, system, settings, now, now)
        sql = "INSERT INTO chats (model, system, settings, created, updated) VALUES (?, ?, ?, ?, ?)"
        return self._run(sql, row).lastrowid or 0

    def chats(self, query: str = "", limit: int = 500) -> list[Chat]:
        """Chats that contain every word of query, latest first; the last may be a prefix."""
        where, values = condition(query)
        sql = f"""SELECT {_COLUMNS} FROM chats WHERE removed IS NULL {where and f"AND {where}"}
            ORDER BY updated DESC, chats.number DESC LIMIT ?"""
        return [Chat.of(row) for row in self._rows(sql, [*values, limit])]

    def chat(self, number: int) -> Chat:
        """Return a chat by its number.

        Raises:
            HistoryError: there is no such chat.
        """
        sql = f"SELECT {_COLUMNS} FROM chats WHERE chats.number = ? AND removed IS NULL"
        rows = self._rows(sql, (number,))
        if not rows:
            raise HistoryError(f"there is no chat {number}", "", "specchat chats list names all.")
        return Chat.of(rows[0])

    def messages(self, chat: int) -> list[Saved]:
        """Messages of a chat, oldest first."""
        sql = "SELECT number, role, text, ending, created FROM messages WHERE chat = ? ORDER BY 1"
        return [Saved.of(row) for row in self._rows(sql, (chat,))]

    def versions(self) -> list[Version]:
        """Present version of each chat, latest first."""
        return [Version.of(*row) for row in self._rows(_VERSIONS, ())]

    def questions(self, limit: int = 100) -> list[str]:
        """Last questions of all chats, oldest first."""
        sql = """SELECT text FROM messages JOIN chats ON chat = chats.number
            WHERE role = 'user' AND removed IS NULL ORDER BY messages.number DESC LIMIT ?"""
        return [as_text(text) for (text,) in reversed(self._rows(sql, (limit,)))]

    def add(self, chat: int, role: str, text: str, ending: str = "") -> int:
        """Append a message; the first question gives an untitled chat its title.

        A chat that another window removed meanwhile is restored.
        """
        now = time.time()

        def write() -> int:
            sql = "INSERT INTO messages (chat, role, text, ending, created) VALUES (?, ?, ?, ?, ?)"
            number = self._executed(sql, (chat, role, text, ending, now))[0].lastrowid
            title = title_of(text) if role == "user" else ""
            self._executed(
                """UPDATE chats SET removed = NULL, updated = ?, title = iif(title = '', ?, title)
                WHERE number = ?""",
                (now, title, chat),
            )
            return number or 0

        return self._together(write)

    def update(self, message: int, text: str, ending: str = "") -> None:
        """Replace the text of a message."""
        self._run(
            "UPDATE messages SET text = ?, ending = ? WHERE number = ?", (text, ending, message)
        )

    def cut(self, chat: int, message: int) -> None:
        """Delete a message and all after it."""
        self._run("DELETE FROM messages WHERE chat = ? AND number >= ?", (chat, message))

    def rename(self, chat: int, title: str) -> None:
        """Change the title of a chat."""
        self._run("UPDATE chats SET title = ? WHERE number = ?", (title, chat))

    def set_system(self, chat: int, system: str) -> None:
        """Change the system message."""
        self._run("UPDATE chats SET system = ? WHERE number = ?", (system, chat))

    def set_model(self, chat: int, model: str) -> None:
        """Change the name of the model that answers."""
        self._run("UPDATE chats SET model = ? WHERE number = ?", (model, chat))

    def settings(self, chat: int) -> str:
        """Settings of this chat only, the JSON object as stored."""
        rows = self._rows("SELECT settings FROM chats WHERE number = ?", (chat,))
        return as_text(rows[0][0]) if rows else "{}"

    def set_settings(self, chat: int, settings: str) -> None:
        """Store the settings of this chat only, a JSON object."""
        self._run("UPDATE chats SET settings = ? WHERE number = ?", (settings, chat))

    def remove(self, chat: int) -> None:
        """Remove a chat, which can be restored for a day."""
        self._run("UPDATE chats SET removed = ? WHERE number = ?", (time.time(), chat))

    def restore(self, chat: int) -> None:
        """Restore a removed chat."""
        self._run("UPDATE chats SET removed = NULL WHERE number = ?", (chat,))

    def removed_last(self) -> int | None:
        """Number of the chat removed last, None if none can be restored."""
        sql = """SELECT number FROM chats WHERE removed >= ? ORDER BY removed DESC LIMIT 1"""
        rows = self._rows(sql, (time.time() - _KEPT_SECONDS,))
        return int(rows[0][0]) if rows else None

    def purge(self) -> None:
        """Delete chats for good that were removed more than a day ago."""
        sql = "DELETE FROM chats WHERE removed < ?"
        deleted = self._run(sql, (time.time() - _KEPT_SECONDS,)).rowcount
        self.has_purged = self.has_purged or deleted > 0

    def close(self) -> None:
        """Close the file."""
        with suppress(sqlite3.Error):
            self._connection.close()

    def _rows(self, sql: str, values: Sequence[str | float]) -> list[tuple[Any, ...]]:
        return self._healing(lambda: self._executed(sql, values)[1])

    def _run(self, sql: str, values: Sequence[str | float] = ()) -> sqlite3.Cursor:
        return self._healing(lambda: self._executed(sql, values)[0])

    def _executed(
        self, sql: str, values: Sequence[str | float] = ()
    ) -> tuple[sqlite3.Cursor, list[tuple[Any, ...]]]:
        """Execute a statement and fetch all rows, as damage may show only after the first."""
        self._check_file()
        try:
            cursor = self._connection.execute(sql, [_storable(value) for value in values])
            return cursor, cursor.fetchall()
        except (OverflowError, UnicodeDecodeError, sqlite3.Error) as error:
            kind = _DamageError if is_damage(error) else HistoryError
            raise kind(f"cannot use the chats in {self._path}", str(error)) from error

    def _together(self, write: Callable[[], int]) -> int:
        """Run several writes in one transaction."""

        def transaction() -> int:
            self._executed("BEGIN IMMEDIATE")
            try:
                result = write()
                self._executed("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk already caused a rollback
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise
            return result

        return self._healing(transaction)

    def _check_file(self) -> None:
        """Check that the file still exists: SQLite reports no error for a deleted one."""
        try:
            same = os.path.samestat(self._file, self._path.stat())
        except OSError as error:
            raise self._error(error.strerror or str(error)) from error
        if not same:
            raise self._error("another file has taken its place")

    def _error(self, why: str) -> HistoryError:
        return HistoryError(f"cannot use the chats in {self._path}", why)


def _private_file(path: Path) -> os.stat_result:
    """Create the database if there is none, for its owner alone; refuse anything but regular files.

    Existing files are not opened: closing one would drop the locks that every other connection of
    this process holds on it (sqlite.org/howtocorrupt.html, section 2.2), and another process would
    then take the log away from under them.

    Raises:
        OSError: it cannot be created, or is something else.
    """
    make_private_folder(path.parent)
    with suppress(FileExistsError), open(path, "xb", opener=private_opener):
        pass
    for suffix in BESIDE:
        with suppress(FileNotFoundError):
            _regular(path.with_name(f"{path.name}{suffix}"))
    status = _regular(path)
    if os.name != "nt" and status.st_mode & 0o077:
        with suppress(OSError):
            path.chmod(FILE_MODE)
    return status


def _regular(path: Path) -> os.stat_result:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError(path)
    return status


def _storable(value: str | float) -> str | float:
    """Replace unpaired surrogates, as in undecodable file names, which SQLite cannot store."""
    return whole_characters(value) if isinstance(value, str) else value
