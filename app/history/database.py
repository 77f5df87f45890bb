"""The SQLite file of the chats: opened, repaired if damaged, and written in transactions."""

import math
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from app.history.records import HistoryError
from app.history.schema import (
    BESIDE,
    DamagedFileError,
    ForeignFileError,
    NewerSchemaError,
    connected,
    is_damage,
    is_odd,
)
from backends.base.safe_files import FILE_MODE, NotRegularError, make_private_folder, private_opener
from backends.chat.message import whole_characters

_WAIT_SECONDS = 3.0
"""Time to wait for a lock that another program holds."""

_NEXT_WAIT_SECONDS = 0.05
"""The same after it was waited for in vain: whoever retries must not be held up each time."""

SYNC_SECONDS = 2.0
"""Most of an answer's growth that a power cut undoes; waiting for the disk at each of its steps
would take time from the model."""

_REPAIR_SECONDS = 60.0
"""Time to wait while another program repairs the file."""

_REASONS = {
    sqlite3.SQLITE_BUSY: "another program has locked the file",
    sqlite3.SQLITE_LOCKED: "another program has locked the file",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_READONLY: "the file may only be read",
    sqlite3.SQLITE_CANTOPEN: "the file or its folder may not be written",
}

Value = str | float | bytes
_Result = TypeVar("_Result")


class _DamageError(HistoryError):
    """The file is or seems damaged."""


class Database:
    def __init__(self, path: Path, *, repairs: bool) -> None:
        """The file is opened, or created, by the first use; until that succeeds, each tries again.

        repairs: whether a damaged one is rebuilt.
        """
        self._path = path
        self._news: list[str] = []
        self._may_repair = repairs
        self._has_waited = False
        self._data_version = -1
        self._synced_at = -math.inf
        self._connection = sqlite3.connect(":memory:")
        self._is_open = False

    def open_file(self) -> None:
        """Open or create the file, unless that was done.

        Raises:
            HistoryError: the file cannot be used.
        """
        if not self._is_open:
            try:
                self._connect()
            except _DamageError as error:
                self._repair(error)

    def news(self) -> str:
        """Return each message for the user once."""
        news = "; ".join(self._news)
        self._news.clear()
        return news

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        return self._healing(lambda: self.execute(sql, values)[1])

    def run(self, sql: str, values: Sequence[Value] = ()) -> sqlite3.Cursor:
        """Execute a statement in a transaction of its own."""
        self._synced_at = time.monotonic()
        return self._healing(lambda: self.execute(sql, values)[0])

    def run_unsynced(self, sql: str, values: Sequence[Value] = ()) -> sqlite3.Cursor:
        """Execute a statement that a power cut may undo until a later one is synced.

        It is synced itself if none was for SYNC_SECONDS.
        """
        if time.monotonic() - self._synced_at >= SYNC_SECONDS:
            return self.run(sql, values)

        def work() -> sqlite3.Cursor:
            self.execute("PRAGMA synchronous = NORMAL")
            try:
                return self.execute(sql, values)[0]
            finally:
                with suppress(sqlite3.Error):
                    self._connection.execute("PRAGMA synchronous = FULL")

        return self._healing(work)

    def together(self, work: Callable[[], _Result]) -> _Result:
        """Run several statements, each by execute, in one transaction."""

        def transaction() -> _Result:
            self.execute("BEGIN IMMEDIATE")
            try:
                result = work()
                self.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk already caused a rollback
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise
            self._synced_at = time.monotonic()
            return result

        return self._healing(transaction)

    def execute(
        self, sql: str, values: Sequence[Value] = ()
    ) -> tuple[sqlite3.Cursor, list[tuple[Any, ...]]]:
        """Execute a statement and fetch all rows, as damage may show only after the first."""
        self._check_file()
        try:
            # SQLite cannot store unpaired surrogates, as in undecodable file names.
            storable = [whole_characters(one) if isinstance(one, str) else one for one in values]
            cursor = self._connection.execute(sql, storable)
            rows = cursor.fetchall()
            self._wait(_WAIT_SECONDS, has_waited=False)
        except (OverflowError, UnicodeDecodeError, sqlite3.Error) as error:
            if _code(error) == sqlite3.SQLITE_BUSY:
                self._wait(_NEXT_WAIT_SECONDS, has_waited=True)
            kind = _DamageError if is_damage(error) else HistoryError
            raise kind(f"cannot use the chats in {self._path}", _reason(error)) from error
        return cursor, rows

    def has_changed(self) -> bool:
        """Whether another connection wrote to the file since the last call."""
        before = self._data_version
        self._data_version = int(self.rows("PRAGMA data_version")[0][0])
        return self._data_version != before

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()

    def _wait(self, seconds: float, *, has_waited: bool) -> None:
        if has_waited != self._has_waited:
            self._has_waited = has_waited
            with suppress(sqlite3.Error):
                self._connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")

    def _connect(self) -> None:
        try:
            self._file = _private_file(self._path)
            wait = _NEXT_WAIT_SECONDS if self._has_waited else _WAIT_SECONDS
            self._has_waited = True  # a next try must not hold up the app; use ends that
            self._connection = connected(self._path, wait)
            self._data_version = -1
            self._is_open = True
        except (ForeignFileError, NewerSchemaError) as error:
            raise HistoryError(f"cannot open the chats in {self._path}", str(error)) from error
        except (DamagedFileError, OSError, sqlite3.Error, UnicodeDecodeError) as error:
            kind = _DamageError if is_damage(error) or is_odd(error) else HistoryError
            is_system = isinstance(error, OSError)
            why = f"{error.strerror}: {error.filename}" if is_system else _reason(error)
            raise kind(f"cannot open the chats in {self._path}", why) from error

    def _repair(self, error: "_DamageError") -> None:
        """Rebuild the file from its readable rows, unless another program just did."""
        from filelock import FileLock, Timeout

        from app.history.repair import repair

        if not self._may_repair:
            raise error
        self._may_repair = False
        self.close()
        lock = FileLock(self._path.with_suffix(".lock"), timeout=_REPAIR_SECONDS, mode=FILE_MODE)
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

    def _check_file(self) -> None:
        """Check that the file still exists: SQLite reports no error for a deleted one."""
        self.open_file()
        try:
            same = os.path.samestat(self._file, self._path.stat())
        except OSError as error:
            is_gone = isinstance(error, FileNotFoundError)
            why = "the file was deleted" if is_gone else error.strerror or str(error)
            raise HistoryError(f"cannot use the chats in {self._path}", why) from error
        if not same:
            why = "another file has taken its place"
            raise HistoryError(f"cannot use the chats in {self._path}", why)


def _private_file(path: Path) -> os.stat_result:
    """Create the database if there is none, for its owner alone; refuse anything but regular files.

    Existing files are not opened: closing one would drop the locks that every other connection of
    this process holds on it (sqlite.org/howtocorrupt.html, section 2.2), and another process would
    then take the log away from under them.
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


def _code(error: BaseException) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _reason(error: BaseException) -> str:
    return _REASONS.get(_code(error), str(error))
