"""Rebuilds a damaged chat database from its readable rows, after making a copy."""

import shutil
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.history.chat import Saved, as_number, as_seconds, as_text
from app.history.damage import BESIDE, LOG
from app.history.page_file import PAGE_SIZES, PageFile
from app.history.page_rows import RecoveredRow, rows
from app.history.path import linked
from app.history.schema import UNNAMED, prepare
from backends.base.atomic_file import put_in_place, temporary_beside
from backends.base.private_file import private_opener, sync_file, sync_folder
from backends.base.regular_file import open_regular

_MOST_TRIED_BYTES = 1 << 28
"""Largest file that is read with every page size."""

_CHAT_COLUMNS, _MESSAGE_COLUMNS = (7, 8, 9), (6, 10)
_ATTACHMENT_COLUMNS, _QUEUE_COLUMNS = (5,), (4,)
"""Numbers of columns by which rows are told apart, in each version of the schema."""

_LINEAR_COLUMNS = 4
"""Columns of a message after its number and chat, before chats were trees."""

_UNKNOWN = -1
"""A parent that is not known: the message before it is taken."""

_RECOVERED = "Recovered chat"
_CUT = "incomplete: the file was damaged"

_NEW_CHAT = "INSERT INTO chats VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_NEW_MESSAGE = "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_NEW_ATTACHMENT = "INSERT INTO attachments VALUES (?, ?, ?, ?, ?)"
_NEW_QUEUED = "INSERT INTO queue VALUES (?, ?, ?, ?)"

_SHOW_NEWEST = """UPDATE chats SET shown = coalesce(
    (SELECT max(number) FROM messages WHERE chat = chats.number AND parent = 0), 0)
    WHERE shown NOT IN (SELECT number FROM messages WHERE chat = chats.number AND parent = 0)"""

_Rows = dict[int, RecoveredRow]


@dataclass(slots=True)
class _Recovered:
    """Rows by number. A second row with the same number gets the next free one."""

    chats: _Rows = field(default_factory=_Rows)
    messages: _Rows = field(default_factory=_Rows)
    attachments: _Rows = field(default_factory=_Rows)
    queue: _Rows = field(default_factory=_Rows)

    def add(self, row: RecoveredRow) -> None:
        """Add a row to its table, if it is one of ours."""
        tables = (
            (self.chats, _CHAT_COLUMNS),
            (self.messages, _MESSAGE_COLUMNS),
            (self.attachments, _ATTACHMENT_COLUMNS),
            (self.queue, _QUEUE_COLUMNS),
        )
        for table, counts in tables:
            if len(row.values) in counts and row.values[0] is None:
                _add(table, row)


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
        try:
            put_in_place(fresh, path)
        except OSError:
            if _beside(kept, LOG).exists():
                _copy(_beside(kept, LOG), _beside(path, LOG))
            raise
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
    if _beside(path, LOG).exists():
        _copy(_beside(path, LOG), _beside(kept, LOG))
    return kept


def _copy(source: Path, target: Path) -> None:
    with open_regular(source) as file, open(target, "xb", opener=private_opener) as copy:
        shutil.copyfileobj(file, copy)
        sync_file(copy)
    sync_folder(target.parent)


def _recovered(path: Path) -> _Recovered:
    """All readable rows; other page sizes are tried if the usual one yields none."""
    log = _beside(path, LOG)
    recovered = _Recovered()
    for page_bytes in (None, *PAGE_SIZES):
        with PageFile(path, log, page_bytes) as file:
            for row in rows(file):
                recovered.add(row)
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
        messages = _messages(recovered)
        queue = [_queued(row) for _, row in sorted(recovered.queue.items())]
        chats = {number: _chat(row) for number, row in recovered.chats.items()}
        for chat in sorted({*messages, *(number for _, number, *_ in queue)} - chats.keys()):
            chats[chat] = _missing_chat(chat, messages.get(chat, []))
        connection.executemany(_NEW_CHAT, chats.values())
        for chat, saved in messages.items():
            rows = _shown(linked(sorted(saved, key=lambda one: one.number)))
            connection.executemany(_NEW_MESSAGE, [_columns(chat, one) for one in rows])
        attachments = sorted(recovered.attachments.items())
        connection.executemany(_NEW_ATTACHMENT, [_attachment(row) for _, row in attachments])
        connection.executemany(_NEW_QUEUED, queue)
        connection.execute(_SHOW_NEWEST)
        connection.execute(UNNAMED)
        connection.execute("COMMIT")


def _messages(recovered: _Recovered) -> dict[int, list[Saved]]:
    """Messages by chat. A lost message with attachments gets their names as its text."""
    messages: dict[int, list[Saved]] = {}
    for row in recovered.messages.values():
        messages.setdefault(as_number(row.values[1]), []).append(_message(row))
    lost: dict[int, list[str]] = {}
    for row in recovered.attachments.values():
        message, name = as_number(row.values[1]), as_text(row.values[3])
        if message not in recovered.messages:
            lost.setdefault(message, []).append(name)
    for number, names in lost.items():
        saved = Saved(number, "user", " ".join(names), _CUT, 0.0, _UNKNOWN)
        messages.setdefault(0, []).append(saved)
    return messages


def _message(row: RecoveredRow) -> Saved:
    _, _, *columns = row.values
    if len(columns) == _LINEAR_COLUMNS:
        columns += [_UNKNOWN, 0, "", ""]
    saved = Saved.of((row.number, *columns))
    return replace(saved, ending=_CUT) if row.missing else saved


def _shown(messages: list[Saved]) -> list[Saved]:
    """Messages that show one of those that follow them: the one shown last, else the newest."""
    following: dict[int, set[int]] = {}
    for message in messages:
        following.setdefault(message.parent, set()).add(message.number)
    found: list[Saved] = []
    for message in messages:
        versions = following.get(message.number, {0})
        shown = message.shown if message.shown in versions else max(versions)
        found.append(replace(message, shown=shown))
    return found


def _columns(chat: int, message: Saved) -> tuple[object, ...]:
    return (
        message.number, chat, message.role, message.text, message.ending, message.created,
        message.parent, message.shown, message.lossy, message.writer,
    )  # fmt: skip


def _missing_chat(number: int, messages: list[Saved]) -> tuple[object, ...]:
    """A chat of which only messages are left."""
    is_named = any(one.role == "user" for one in messages[:1])
    created = messages[0].created if messages else 0.0
    title = "" if is_named else f"{_RECOVERED} {number}"
    return (number, title, "", "", created, created, None, "{}", 0)


def _chat(row: RecoveredRow) -> tuple[object, ...]:
    _, title, model, system, created, updated, removed, *later = row.values
    settings, shown = (*later, *("{}", 0)[len(later) :])
    return (
        row.number, as_text(title), as_text(model), as_text(system), as_seconds(created),
        as_seconds(updated), None if removed is None else as_seconds(removed),
        as_text(settings), as_number(shown),
    )  # fmt: skip


def _attachment(row: RecoveredRow) -> tuple[object, ...]:
    _, message, *texts = row.values
    return (row.number, as_number(message), *map(as_text, texts))


def _queued(row: RecoveredRow) -> tuple[int, int, str, str]:
    _, chat, text, attachments = row.values
    return (row.number, as_number(chat), as_text(text), as_text(attachments))
