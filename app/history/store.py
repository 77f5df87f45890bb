"""The chat database: one file, which two programs may use at once."""

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.history.chat import Chat, Saved, title_of
from app.history.errors import HistoryError
from app.history.schema import NewerSchemaError, prepare
from app.history.search import condition, title_holds
from app.history.versions import VERSIONS, Version

_WAIT_SECONDS = 3.0
_KEPT_SECONDS = 86_400.0
"""How long a removed chat can be restored."""

_COLUMNS = """
    chats.number, title, model, system, created, updated,
    (SELECT count(*) FROM messages WHERE chat = chats.number)
"""


class History:
    """All chats. One thread at a time may use it; each write is a transaction of its own."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._file = path.stat()
        self.has_purged = False
        """Whether chats were deleted for good since it was opened."""

    @classmethod
    def open(cls, path: Path) -> "History":
        """Open the file, or make it.

        Raises:
            HistoryError: it cannot be used.
        """
        path = path.absolute()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            with suppress(OSError):
                path.chmod(0o600)  # what is said is its user's alone
            connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise HistoryError(f"cannot open the chats in {path}", str(error)) from error
        try:
            prepare(connection, _WAIT_SECONDS)
            connection.create_function("title_holds", 2, title_holds, deterministic=True)
            history = cls(connection, path)
        except NewerSchemaError as error:
            connection.close()
            why = "a newer version of specchat wrote it"
            raise HistoryError(f"cannot open the chats in {path}", why) from error
        except (OSError, sqlite3.Error) as error:
            connection.close()
            raise HistoryError(f"cannot open the chats in {path}", str(error)) from error
        with suppress(HistoryError):  # another program may be writing; next time will do
            history.purge()
        return history

    def create(self, model: str, system: str = "", settings: str = "{}") -> int:
        """A new chat; returns its number. settings: its own, a JSON object."""
        now = time.time()
        row = (model, system, settings, now, now)
        sql = "INSERT INTO chats (model, system, settings, created, updated) VALUES (?, ?, ?, ?, ?)"
        return self._run(sql, row).lastrowid or 0

    def chats(self, query: str = "", limit: int = 500) -> list[Chat]:
        """Chats that hold every word of query, the last one may be cut; the latest first."""
        where, values = condition(query)
        sql = f"""SELECT {_COLUMNS} FROM chats WHERE removed IS NULL {where and f"AND {where}"}
            ORDER BY updated DESC, chats.number DESC LIMIT ?"""
        return [Chat(*row) for row in self._rows(sql, [*values, limit])]

    def chat(self, number: int) -> Chat:
        """One chat.

        Raises:
            HistoryError: there is none of this number.
        """
        sql = f"SELECT {_COLUMNS} FROM chats WHERE chats.number = ? AND removed IS NULL"
        rows = self._rows(sql, (number,))
        if not rows:
            raise HistoryError(f"there is no chat {number}", "", "specchat chats list names all.")
        return Chat(*rows[0])

    def messages(self, chat: int) -> list[Saved]:
        """Its messages, oldest first."""
        sql = "SELECT number, role, text, ending, created FROM messages WHERE chat = ? ORDER BY 1"
        return [Saved(*row) for row in self._rows(sql, (chat,))]

    def versions(self) -> list[Version]:
        """The present state of each chat, the latest first."""
        return [Version.of(*row) for row in self._rows(VERSIONS, ())]

    def questions(self, limit: int = 100) -> list[str]:
        """The last questions of all chats, oldest first."""
        sql = """SELECT text FROM messages JOIN chats ON chat = chats.number
            WHERE role = 'user' AND removed IS NULL ORDER BY messages.number DESC LIMIT ?"""
        return [text for (text,) in reversed(self._rows(sql, (limit,)))]

    def add(self, chat: int, role: str, text: str, ending: str = "") -> int:
        """Append a message; the first question gives an untitled chat its title.

        A chat that another window removed meanwhile comes back: it is in use.
        """
        now = time.time()

        def write() -> int:
            sql = "INSERT INTO messages (chat, role, text, ending, created) VALUES (?, ?, ?, ?, ?)"
            number = self._run(sql, (chat, role, text, ending, now)).lastrowid
            title = title_of(text) if role == "user" else ""
            self._run(
                """UPDATE chats SET removed = NULL, updated = ?, title = iif(title = '', ?, title)
                WHERE number = ?""",
                (now, title, chat),
            )
            return number or 0

        return self._together(write)

    def update(self, message: int, text: str, ending: str = "") -> None:
        """Save a message as it now stands."""
        self._run(
            "UPDATE messages SET text = ?, ending = ? WHERE number = ?", (text, ending, message)
        )

    def cut(self, chat: int, message: int) -> None:
        """Delete a message and all after it."""
        self._run("DELETE FROM messages WHERE chat = ? AND number >= ?", (chat, message))

    def rename(self, chat: int, title: str) -> None:
        """Give a chat another title."""
        self._run("UPDATE chats SET title = ? WHERE number = ?", (title, chat))

    def set_system(self, chat: int, system: str) -> None:
        """Change what the model is told first."""
        self._run("UPDATE chats SET system = ? WHERE number = ?", (system, chat))

    def set_model(self, chat: int, model: str) -> None:
        """Change the name of the model that answers."""
        self._run("UPDATE chats SET model = ? WHERE number = ?", (model, chat))

    def settings(self, chat: int) -> str:
        """What was set for a chat alone: a JSON object, as it was kept."""
        rows = self._rows("SELECT settings FROM chats WHERE number = ?", (chat,))
        return str(rows[0][0]) if rows else "{}"

    def set_settings(self, chat: int, settings: str) -> None:
        """Keep what is set for a chat alone: a JSON object."""
        self._run("UPDATE chats SET settings = ? WHERE number = ?", (settings, chat))

    def remove(self, chat: int) -> None:
        """Put a chat away; it can be restored for a day."""
        self._run("UPDATE chats SET removed = ? WHERE number = ?", (time.time(), chat))

    def restore(self, chat: int) -> None:
        """Bring a removed chat back."""
        self._run("UPDATE chats SET removed = NULL WHERE number = ?", (chat,))

    def removed_last(self) -> int | None:
        """The chat that was removed last, of those that can be restored."""
        sql = """SELECT number FROM chats WHERE removed >= ? ORDER BY removed DESC LIMIT 1"""
        rows = self._rows(sql, (time.time() - _KEPT_SECONDS,))
        return int(rows[0][0]) if rows else None

    def purge(self) -> None:
        """Delete for good what was removed more than a day ago."""
        sql = "DELETE FROM chats WHERE removed < ?"
        deleted = self._run(sql, (time.time() - _KEPT_SECONDS,)).rowcount
        self.has_purged = self.has_purged or deleted > 0

    def close(self) -> None:
        """Close the file; what was saved is saved."""
        with suppress(sqlite3.Error):
            self._connection.close()

    def _rows(self, sql: str, values: Sequence[str | float]) -> list[tuple[Any, ...]]:
        cursor = self._run(sql, values)
        try:
            return cursor.fetchall()
        except sqlite3.Error as error:  # damage may show only after the first row
            raise self._error(str(error)) from error

    def _run(self, sql: str, values: Sequence[str | float] = ()) -> sqlite3.Cursor:
        self._check_file()
        try:
            return self._connection.execute(sql, [_storable(value) for value in values])
        except (OverflowError, sqlite3.Error) as error:
            raise self._error(str(error)) from error

    def _together(self, write: Callable[[], int]) -> int:
        """Several writes, of which all happen or none."""
        self._run("BEGIN IMMEDIATE")
        try:
            result = write()
            self._run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # on a full disk SQLite has already gone back
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            raise
        return result

    def _check_file(self) -> None:
        """What is written to a deleted file is lost without a word from SQLite."""
        try:
            same = os.path.samestat(self._file, self._path.stat())
        except OSError as error:
            raise self._error(error.strerror or str(error)) from error
        if not same:
            raise self._error("another file has taken its place")

    def _error(self, why: str) -> HistoryError:
        return HistoryError(f"cannot use the chats in {self._path}", why)


def _storable(value: str | float) -> str | float:
    """Halves of characters, as of a file name in another encoding, cannot be stored."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
