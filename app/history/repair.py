"""Rebuilds a damaged chat database from its readable rows, after making a copy."""

import shutil
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from app.history.chat import as_seconds, as_text, title_of
from app.history.page_file import PAGE_SIZES, PageFile
from app.history.page_rows import RecoveredRow, rows
from app.history.schema import DamagedFileError, prepare
from backends.base.atomic_file import temporary_beside
from backends.base.private_file import private_opener
from backends.base.regular_file import open_regular

_LOG = "-wal"
BESIDE = (_LOG, "-shm", "-journal")
"""Suffixes of SQLite's own files beside the database."""

_MOST_TRIED_BYTES = 1 << 28
"""Largest file that is read with every page size."""

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_CHAT_COLUMNS, _MESSAGE_COLUMNS = (7, 8), 6
_RECOVERED = "Recovered chat"
_CUT = "incomplete: the file was damaged"

_NEW_CHAT = """INSERT INTO chats (number, title, model, system, created, updated, removed, settings)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_NEW_MESSAGE = """INSERT INTO messages (number, chat, role, text, ending, created)
    VALUES (?, ?, ?, ?, ?, ?)"""


@dataclass(slots=True)
class _Recovered:
    """Rows by number. A second row with the same number gets the next free one."""

    chats: dict[int, RecoveredRow] = field(default_factory=dict[int, RecoveredRow])
    messages: dict[int, RecoveredRow] = field(default_factory=dict[int, RecoveredRow])


def is_damage(error: BaseException) -> bool:
    """Whether an error of the sqlite3 module means that the file is damaged."""
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, DamagedFileError | UnicodeDecodeError) or code & 0xFF in _DAMAGE


def repair(path: Path, wait_seconds: float, *, is_ours: bool) -> str:
    """Replace a database by one with every readable row; return a report for the user.

    is_ours: False if it may belong to another program: if no row looks like ours, it stays
    unchanged and "" is returned.

    Raises:
        OSError, sqlite3.Error: it cannot be replaced, and stays unchanged.
    """
    recovered = _recovered(path)
    if not (is_ours or recovered.chats or recovered.messages):
        return ""
    fresh = temporary_beside(path)
    try:
        _write(fresh, recovered, wait_seconds)
        kept = _keep(path)
        for suffix in BESIDE:  # SQLite would apply an old log to the new file
            _beside(path, suffix).unlink(missing_ok=True)
        fresh.replace(path)
    finally:
        for suffix in ("", *BESIDE):
            with suppress(OSError):
                _beside(fresh, suffix).unlink(missing_ok=True)
    return (
        f"the chat database was damaged: {len(recovered.messages):,} messages were recovered; "
        f"a copy of the damaged file is {kept}"
    )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def _keep(path: Path) -> Path:
    """Copy the file and its log, readable by their owner only; return the copy of the file."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    number = 0
    while True:
        kept = path.with_name(f"{path.stem}.damaged-{stamp}{f'-{number}' * bool(number)}.sqlite3")
        try:
            _copy(path, kept)
            break
        except FileExistsError:
            number += 1
    if _beside(path, _LOG).exists():
        _copy(_beside(path, _LOG), _beside(kept, _LOG))
    return kept


def _copy(source: Path, target: Path) -> None:
    with open_regular(source) as file, open(target, "xb", opener=private_opener) as copy:
        shutil.copyfileobj(file, copy)


def _recovered(path: Path) -> _Recovered:
    """All readable rows; other page sizes are tried if the usual one yields none."""
    log = _beside(path, _LOG)
    recovered = _Recovered()
    for page_bytes in (None, *PAGE_SIZES):
        with PageFile(path, log, page_bytes) as file:
            for row in rows(file):
                if len(row.values) in _CHAT_COLUMNS and row.values[0] is None:
                    _add(recovered.chats, row)
                elif len(row.values) == _MESSAGE_COLUMNS and row.values[0] is None:
                    _add(recovered.messages, row)
        if recovered.chats or recovered.messages or path.stat().st_size > _MOST_TRIED_BYTES:
            break
    return recovered


def _add(known: dict[int, RecoveredRow], row: RecoveredRow) -> None:
    before = known.setdefault(row.number, row)
    if before is row or before.values == row.values:
        return
    if before.missing and not row.missing:
        known[row.number] = row
    elif not row.missing:
        number = max(known) + 1
        known[number] = RecoveredRow(number, row.values)


def _write(fresh: Path, recovered: _Recovered, wait_seconds: float) -> None:
    with open(fresh, "xb", opener=private_opener):
        pass
    with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        prepare(connection, wait_seconds)
        connection.execute("BEGIN")
        messages = [_message(row) for _, row in sorted(recovered.messages.items())]
        chats = {number: _chat(row) for number, row in recovered.chats.items()}
        for _, chat, role, text, _, created in messages:
            if chat not in chats:
                title = title_of(text) if role == "user" else ""
                title = title or f"{_RECOVERED} {chat}"
                chats[chat] = (chat, title, "", "", created, created, None, "{}")
        connection.executemany(_NEW_CHAT, chats.values())
        connection.executemany(_NEW_MESSAGE, messages)
        connection.execute("COMMIT")


def _chat(row: RecoveredRow) -> tuple[object, ...]:
    _, title, model, system, created, updated, removed, *settings = row.values
    return (
        row.number, as_text(title), as_text(model), as_text(system), as_seconds(created),
        as_seconds(updated), None if removed is None else as_seconds(removed),
        as_text(settings[0]) if settings else "{}",
    )  # fmt: skip


def _message(row: RecoveredRow) -> tuple[int, int, str, str, str, float]:
    _, chat, role, text, ending, created = row.values
    number = chat if isinstance(chat, int) else 0
    ending = _CUT if row.missing else as_text(ending)
    return (row.number, number, as_text(role), as_text(text), ending, as_seconds(created))
