"""The chat database: one file, which two programs may use at once."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.history.errors import HistoryError
from app.history.schema import NewerSchemaError, prepare

_WAIT_SECONDS = 3.0
_KEPT_SECONDS = 86_400.0
"""How long a removed chat can be restored."""

_TITLE_LENGTH = 60
_COLUMNS = """
    chats.number, title, model, system, created, updated,
    (SELECT count(*) FROM messages WHERE chat = chats.number)
"""


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation. created and updated are in seconds since 1970."""

    number: int
    title: str
    model: str
    system: str
    created: float
    updated: float
    messages: int


@dataclass(frozen=True, slots=True)
class Saved:
    """One message as it was last saved; an answer cut short has no ending."""

    number: int
    role: str
    text: str
    ending: str
    created: float


class History:
    """All chats. One thread at a time may use it; each write is a transaction of its own."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    def open(cls, path: Path) -> "History":
        """Open the file, or make it.

        Raises:
            HistoryError: it cannot be used.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise HistoryError(f"cannot open the chats in {path}", str(error)) from error
        try:
            prepare(connection)
        except NewerSchemaError as error:
            connection.close()
            why = "a newer version of specchat wrote it"
            raise HistoryError(f"cannot open the chats in {path}", why) from error
        except sqlite3.Error as error:
            connection.close()
            raise HistoryError(f"cannot open the chats in {path}", str(error)) from error
        history = cls(connection, path)
        with suppress(HistoryError):  # another program may be writing; next time will do
            history.purge()
        return history

    def create(self, model: str, system: str = "") -> int:
        """A new chat; returns its number."""
        now = time.time()
        row = (model, system, now, now)
        sql = "INSERT INTO chats (model, system, created, updated) VALUES (?, ?, ?, ?)"
        return self._run(sql, row).lastrowid or 0

    def chats(self, query: str = "", limit: int = 500) -> list[Chat]:
        """Chats that hold every word of query, the last one may be cut; the latest first."""
        where, values = "", []
        if query.strip():
            where = """AND (title LIKE ? ESCAPE '\\' OR chats.number IN (
                SELECT chat FROM messages JOIN words ON words.rowid = messages.number
                WHERE words MATCH ?))"""
            values = [f"%{_literal(query.strip())}%", _quoted(query)]
        sql = f"""SELECT {_COLUMNS} FROM chats WHERE removed IS NULL {where}
            ORDER BY updated DESC, chats.number DESC LIMIT ?"""
        return [Chat(*row) for row in self._run(sql, [*values, limit]).fetchall()]

    def chat(self, number: int) -> Chat:
        """One chat.

        Raises:
            HistoryError: there is none of this number.
        """
        sql = f"SELECT {_COLUMNS} FROM chats WHERE chats.number = ? AND removed IS NULL"
        row = self._run(sql, (number,)).fetchone()
        if row is None:
            raise HistoryError(f"there is no chat {number}", "", "specchat chats list names all.")
        return Chat(*row)

    def messages(self, chat: int) -> list[Saved]:
        """Its messages, oldest first."""
        sql = "SELECT number, role, text, ending, created FROM messages WHERE chat = ? ORDER BY 1"
        return [Saved(*row) for row in self._run(sql, (chat,)).fetchall()]

    def add(self, chat: int, role: str, text: str, ending: str = "") -> int:
        """Append a message; the first question gives an untitled chat its title."""
        now = time.time()

        def write() -> int:
            sql = "INSERT INTO messages (chat, role, text, ending, created) VALUES (?, ?, ?, ?, ?)"
            number = self._connection.execute(sql, (chat, role, text, ending, now)).lastrowid
            title = _title(text) if role == "user" else ""
            self._connection.execute(
                "UPDATE chats SET updated = ?, title = iif(title = '', ?, title) WHERE number = ?",
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

    def remove(self, chat: int) -> None:
        """Put a chat away; it can be restored for a day."""
        self._run("UPDATE chats SET removed = ? WHERE number = ?", (time.time(), chat))

    def restore(self, chat: int) -> None:
        """Bring a removed chat back."""
        self._run("UPDATE chats SET removed = NULL WHERE number = ?", (chat,))

    def purge(self) -> None:
        """Delete for good what was removed more than a day ago."""
        self._run("DELETE FROM chats WHERE removed < ?", (time.time() - _KEPT_SECONDS,))

    def close(self) -> None:
        """Close the file; what was saved is saved."""
        with suppress(sqlite3.Error):
            self._connection.close()

    def _run(self, sql: str, values: Sequence[Any]) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _together(self, write: Callable[[], int]) -> int:
        """Several writes, of which all happen or none."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                result = write()
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._error(error) from error
        return result

    def _error(self, error: sqlite3.Error) -> HistoryError:
        return HistoryError(f"cannot use the chats in {self._path}", str(error))


def _title(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _TITLE_LENGTH else f"{line[: _TITLE_LENGTH - 1]}…"


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _quoted(query: str) -> str:
    """A user's words as a full-text query in which nothing is an operator."""
    words = [word.replace('"', '""') for word in query.replace("\0", " ").split()]
    return " ".join(f'"{word}"' for word in words) + "*"
