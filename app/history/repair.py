"""Rebuilds a damaged chat database from its readable rows, after making a copy."""

import os
import shutil
import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Self

from app.history.records import Saved, as_number, as_seconds, as_text, linked
from app.history.schema import BESIDE, LOG, UNNAMED, prepare
from backends.base.safe_files import (
    open_regular,
    private_opener,
    put_in_place,
    sync_file,
    sync_folder,
    temporary_beside,
)

# Reads the pages of a damaged SQLite file and of its write-ahead log, without SQLite.
#
# Format: https://www.sqlite.org/fileformat2.html

USUAL_PAGE_BYTES = 4096
PAGE_SIZES = tuple(1 << bits for bits in range(9, 17))
_HEAD_BYTES = 100
_LOG_HEAD_BYTES, _FRAME_HEAD_BYTES = 32, 24
_FRAME = struct.Struct(">II8s")
"""Page number, size of the file in pages if this frame ends a transaction, salt."""

_SALT_OFFSET = 16


class PageFile:
    """Pages of a database by number, from 1; log may be missing."""

    def __init__(self, path: Path, log: Path, page_bytes: int | None = None) -> None:
        with ExitStack() as stack:
            self._file: BinaryIO = stack.enter_context(open_regular(path))
            self._log: BinaryIO | None = None
            if log.exists():
                self._log = stack.enter_context(open_regular(log))
            head = self._file.read(_HEAD_BYTES)
            self.page_bytes = page_bytes or _page_bytes(head)
            """Size of a page."""
            self._frames = self._logged()
            self._held = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_reason: object) -> None:
        self._held.close()

    @property
    def numbers(self) -> Iterator[int]:
        """Numbers of all pages: those in the file, then further ones in the log."""
        count = -(-os.fstat(self._file.fileno()).st_size // self.page_bytes)
        yield from range(1, count + 1)
        yield from sorted(number for number in self._frames if number > count)

    def page(self, number: int) -> bytes:
        """Newest version of a page; empty if there is none."""
        return next(self.versions(number), b"")

    def versions(self, number: int) -> Iterator[bytes]:
        """All versions of a page, newest first; a page cut short is padded with zeros."""
        for offset in reversed(self._frames.get(number, ())):
            assert self._log is not None
            yield self._read(self._log, offset)
        if page := self._read(self._file, (number - 1) * self.page_bytes):
            yield page

    def _read(self, file: BinaryIO, offset: int) -> bytes:
        if offset < 0:
            return b""
        file.seek(offset)
        page = file.read(self.page_bytes)
        return page.ljust(self.page_bytes, b"\0") if page else b""

    def _logged(self) -> dict[int, list[int]]:
        """Offsets of each page in the log, newest last, up to the last committed transaction.

        Frames from earlier uses of the log have another salt. Checksums are ignored, as one damaged
        frame would invalidate all after it.
        """
        frames: dict[int, list[int]] = {}
        if self._log is None:
            return frames
        salt = self._log.read(_LOG_HEAD_BYTES)[_SALT_OFFSET : _SALT_OFFSET + 8]
        frame_bytes = _FRAME_HEAD_BYTES + self.page_bytes
        size = os.fstat(self._log.fileno()).st_size
        open_frames: list[tuple[int, int]] = []
        for offset in range(_LOG_HEAD_BYTES, size - frame_bytes + 1, frame_bytes):
            self._log.seek(offset)
            number, ends, frame_salt = _FRAME.unpack(self._log.read(_FRAME.size))
            if offset == _LOG_HEAD_BYTES:
                salt = frame_salt  # the head may be damaged
            if frame_salt != salt:
                continue
            open_frames.append((number, offset + _FRAME_HEAD_BYTES))
            if ends:
                for page, start in open_frames:
                    frames.setdefault(page, []).append(start)
                open_frames.clear()
        return frames


def _page_bytes(head: bytes) -> int:
    size = int.from_bytes(head[16:18])
    size = 1 << 16 if size == 1 else size
    return size if size in PAGE_SIZES else USUAL_PAGE_BYTES


# Reads single rows from the pages of a SQLite file, which may be damaged.
#
# Format: https://www.sqlite.org/fileformat2.html

Value = int | float | str | bytes | None

_TABLE_LEAF = 0x0D
_PAGE_KINDS = frozenset({0x00, 0x02, 0x05, 0x0A, _TABLE_LEAF})
"""First bytes of pages; 0 is that of an overflow page, below 2**24 pages."""

_LEAF_HEAD_BYTES, _POINTER_BYTES = 8, 2
_FILE_HEAD_BYTES = 100
_MOST_COLUMNS = 32
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
_REAL, _ZERO, _ONE, _BLOB = 7, 8, 9, 12


@dataclass(frozen=True, slots=True)
class RecoveredRow:
    """A row with its number. missing: bytes of its last columns that could not be read."""

    number: int
    values: tuple[Value, ...]
    missing: int = 0


def rows(file: PageFile) -> Iterator[RecoveredRow]:
    """Rows of all tables.

    Older versions of a page are read only if the newest is not a valid page, as they also hold
    deleted rows. Their rows come last.
    """
    older: list[tuple[int, int]] = []
    for number in file.numbers:
        for age, page in enumerate(file.versions(number)):
            if _kind(page, number) in _PAGE_KINDS:
                if age:
                    older.append((number, age))
                else:
                    yield from _rows_of(page, number, file)
                break
    for number, wanted in older:
        for age, page in enumerate(file.versions(number)):
            if age == wanted:
                yield from _rows_of(page, number, file)


def _start(number: int) -> int:
    """Offset of a page's header; in the first page the file's header precedes it."""
    return _FILE_HEAD_BYTES if number == 1 else 0


def _kind(page: bytes, number: int) -> int | None:
    return page[_start(number)] if page else None


def _rows_of(page: bytes, number: int, file: PageFile) -> Iterator[RecoveredRow]:
    if _kind(page, number) != _TABLE_LEAF:
        return
    start = _start(number)
    count = int.from_bytes(page[start + 3 : start + 5])
    first = start + _LEAF_HEAD_BYTES
    last = min(first + _POINTER_BYTES * count, len(page))
    seen: set[int] = set()
    for at in range(first, last, _POINTER_BYTES):
        offset = int.from_bytes(page[at : at + _POINTER_BYTES]) % len(page)  # as in SQLite
        if offset not in seen:
            seen.add(offset)
            row = _row(page, offset, file)
            if row is not None:
                yield row


def _row(page: bytes, offset: int, file: PageFile) -> RecoveredRow | None:
    """Row of the cell at an offset, None if there is none."""
    try:
        size, offset = _varint(page, offset)
        number, offset = _varint(page, offset)
        payload = _payload(page, offset, size, file)
        values = _values(payload)
    except (IndexError, ValueError, struct.error):
        return None
    return RecoveredRow(_signed(number), values, max(size - len(payload), 0))


def _payload(page: bytes, offset: int, size: int, file: PageFile) -> bytes:
    """Bytes of a row; a long one continues in a chain of overflow pages."""
    usable = len(page)
    most = usable - 35
    if size <= most:
        return page[offset : offset + size]
    least = (usable - 12) * 32 // 255 - 23
    local = least + (size - least) % (usable - 4)
    local = local if local <= most else least
    parts = [page[offset : offset + local]]
    following = int.from_bytes(page[offset + local : offset + local + 4])
    rest = size - local
    seen: set[int] = set()
    while rest > 0 and following not in seen and (more := file.page(following)):
        seen.add(following)
        parts.append(more[4 : 4 + rest])
        rest -= len(parts[-1])
        following = int.from_bytes(more[:4])
    return b"".join(parts)


def _values(payload: bytes) -> tuple[Value, ...]:
    """Columns of a row; the last one present may be incomplete.

    Raises:
        ValueError, IndexError, struct.error: the bytes are no row.
    """
    head_bytes, offset = _varint(payload, 0)
    kinds: list[int] = []
    while offset < head_bytes:
        kind, offset = _varint(payload, offset)
        kinds.append(kind)
    if not 0 < len(kinds) <= _MOST_COLUMNS:
        raise ValueError
    if offset > head_bytes:  # only the last kind is damaged
        kinds[-1], offset = 0, head_bytes
    values: list[Value] = []
    for kind in kinds:
        size = _size(kind)
        values.append(_value(kind, payload[offset : offset + size]))
        offset += size
    return tuple(values)


def _size(kind: int) -> int:
    if kind < len(_INTEGER_BYTES):
        return _INTEGER_BYTES[kind]
    if kind < _BLOB:
        return 8 if kind == _REAL else 0
    return (kind - _BLOB) // 2


def _value(kind: int, data: bytes) -> Value:
    if kind == 0 or (kind < _BLOB and len(data) < _size(kind)):
        return None
    if kind < len(_INTEGER_BYTES):
        return int.from_bytes(data, signed=True)
    if kind == _REAL:
        return struct.unpack(">d", data)[0]
    if kind < _BLOB:
        return {_ZERO: 0, _ONE: 1}.get(kind)
    return data.decode(errors="replace") if kind % 2 else data


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Number of one to nine bytes, and the offset after it."""
    number = 0
    for index in range(8):
        byte = data[offset + index]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, offset + index + 1
    return number << 8 | data[offset + 8], offset + 9


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


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
