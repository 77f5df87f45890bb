"""Makes a damaged chat database anew of all that can be read of it; a copy is kept first."""

import shutil
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from app.history.chat import as_seconds, as_text, title_of
from app.history.page_file import PAGE_SIZES, PageFile
from app.history.page_rows import FoundRow, rows
from app.history.schema import DamagedFileError, prepare
from backends.base.atomic_file import temporary_beside
from backends.base.private_file import private_opener
from backends.base.regular_file import open_regular

_LOG = "-wal"
BESIDE = (_LOG, "-shm", "-journal")
"""What SQLite calls its own files beside the database."""

_MOST_TRIED_BYTES = 1 << 28
"""Of a file that is read with every size of pages."""

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_CHAT_COLUMNS, _MESSAGE_COLUMNS = (7, 8), 6
_RECOVERED = "Recovered chat"
_CUT = "incomplete: the file was damaged"

_NEW_CHAT = """INSERT INTO chats (number, title, model, system, created, updated, removed, settings)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_NEW_MESSAGE = """INSERT INTO messages (number, chat, role, text, ending, created)
    VALUES (?, ?, ?, ?, ?, ?)"""


@dataclass(slots=True)
class _Readable:
    """Rows by their numbers. A second row of a number that is taken gets the next free one."""

    chats: dict[int, FoundRow] = field(default_factory=dict[int, FoundRow])
    messages: dict[int, FoundRow] = field(default_factory=dict[int, FoundRow])


def is_damage(error: BaseException) -> bool:
    """Whether an error of SQLite's module says that the file is damaged."""
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, DamagedFileError | UnicodeDecodeError) or code & 0xFF in _DAMAGE


def repair(path: Path, wait_seconds: float, *, is_ours: bool) -> str:
    """Replace a database by one with every row that can be read; says what was done.

    is_ours: False where it may be another program's; if no row of it looks like ours, nothing is
    done, and "" returned.

    Raises:
        OSError, sqlite3.Error: it cannot be; the database is as it was.
    """
    found = _readable(path)
    if not (is_ours or found.chats or found.messages):
        return ""
    fresh = temporary_beside(path)
    try:
        _write(fresh, found, wait_seconds)
        kept = _keep(path)
        for suffix in BESIDE:  # SQLite would take up an old log beside a new file
            _beside(path, suffix).unlink(missing_ok=True)
        fresh.replace(path)
    finally:
        for suffix in ("", *BESIDE):
            with suppress(OSError):
                _beside(fresh, suffix).unlink(missing_ok=True)
    return (
        f"the file of the chats was damaged: {len(found.messages):,} messages were saved from it; "
        f"a copy of it as it was is {kept}"
    )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def _keep(path: Path) -> Path:
    """Copy the file and its log, readable by their owner alone; returns the copy of the file."""
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


def _readable(path: Path) -> _Readable:
    """All rows that can be read; by another size of pages where the usual one gives none."""
    log = _beside(path, _LOG)
    found = _Readable()
    for page_bytes in (None, *PAGE_SIZES):
        with PageFile(path, log, page_bytes) as file:
            for row in rows(file):
                if len(row.values) in _CHAT_COLUMNS and row.values[0] is None:
                    _add(found.chats, row)
                elif len(row.values) == _MESSAGE_COLUMNS and row.values[0] is None:
                    _add(found.messages, row)
        if found.chats or found.messages or path.stat().st_size > _MOST_TRIED_BYTES:
            break
    return found


def _add(known: dict[int, FoundRow], row: FoundRow) -> None:
    before = known.setdefault(row.number, row)
    if before is row or before.values == row.values:
        return
    if before.missing and not row.missing:
        known[row.number] = row
    elif not row.missing:
        number = max(known) + 1
        known[number] = FoundRow(number, row.values)


def _write(fresh: Path, found: _Readable, wait_seconds: float) -> None:
    with open(fresh, "xb", opener=private_opener):
        pass
    with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        prepare(connection, wait_seconds)
        connection.execute("BEGIN")
        messages = [_message(one) for _, one in sorted(found.messages.items())]
        chats = {number: _chat(row) for number, row in found.chats.items()}
        for _, chat, role, text, _, created in messages:
            if chat not in chats:
                title = title_of(text) if role == "user" else ""
                title = title or f"{_RECOVERED} {chat}"
                chats[chat] = (chat, title, "", "", created, created, None, "{}")
        connection.executemany(_NEW_CHAT, chats.values())
        connection.executemany(_NEW_MESSAGE, messages)
        connection.execute("COMMIT")


def _chat(row: FoundRow) -> tuple[object, ...]:
    _, title, model, system, created, updated, removed, *settings = row.values
    return (
        row.number, as_text(title), as_text(model), as_text(system), as_seconds(created),
        as_seconds(updated), None if removed is None else as_seconds(removed),
        as_text(settings[0]) if settings else "{}",
    )  # fmt: skip


def _message(row: FoundRow) -> tuple[int, int, str, str, str, float]:
    _, chat, role, text, ending, created = row.values
    number = chat if isinstance(chat, int) else 0
    ending = _CUT if row.missing else as_text(ending)
    return (row.number, number, as_text(role), as_text(text), ending, as_seconds(created))
