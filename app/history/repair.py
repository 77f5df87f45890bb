"""Rebuilds a damaged chat database from its readable rows, after making a copy.

SQLite reads no further than the first damaged page of a tree, and nothing at all behind a damaged
schema. So pages are read one by one: https://www.sqlite.org/fileformat2.html
"""

import mmap
import shutil
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path

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

Value = int | float | str | bytes | None
Bytes = bytes | mmap.mmap

_PAGE_BYTES = 4096
"""SQLite's own default, in every file that was ever written here."""

_LOG_HEAD_BYTES, _FRAME_HEAD_BYTES = 32, 24
_FRAME = struct.Struct(">II8s")
"""Page number, size of the file in pages if this frame ends a transaction, salt."""

_TABLE_LEAF = 0x0D
_PAGE_KINDS = frozenset({0x00, 0x02, 0x05, 0x0A, _TABLE_LEAF})
"""First bytes of pages; 0 is that of an overflow page, below 2**24 pages."""

_FILE_HEAD_BYTES, _LEAF_HEAD_BYTES, _POINTER_BYTES = 100, 8, 2
_MOST_COLUMNS = 32
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)
"""Bytes of a column by its type: NULL, six kinds of integers, a real number, 0, 1, two reserved."""
_REAL, _ZERO, _ONE = 7, 8, 9

_TABLES = {7: "chats", 8: "chats", 9: "chats", 6: "messages", 10: "messages", 11: "messages",
           5: "attachments", 4: "queue"}  # fmt: skip
"""Tables by the number of columns that their rows have, in each version of the schema."""

_CHAT_COLUMNS = 10
"""Of chats now; messages had as many once, and begin with a number."""

_LINEAR_COLUMNS = 4
"""Columns of a message after its number and chat, before chats were trees."""

_UNKNOWN = -1
"""A parent that is not known: the message before it is taken."""

_RECOVERED = "Recovered chat"
_CUT = "incomplete: the file was damaged"

_SHOW_NEWEST = """UPDATE messages SET shown = coalesce((SELECT max(number) FROM messages AS other
        WHERE other.chat = messages.chat AND other.parent = messages.number), 0)
    WHERE shown NOT IN (SELECT number FROM messages AS other
        WHERE other.chat = messages.chat AND other.parent = messages.number);
UPDATE chats SET shown = coalesce(
    (SELECT max(number) FROM messages WHERE chat = chats.number AND parent = 0), 0)
    WHERE shown NOT IN (SELECT number FROM messages WHERE chat = chats.number AND parent = 0)"""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row with its number. missing: bytes of its last columns that could not be read."""

    number: int
    values: tuple[Value, ...]
    missing: int = 0


_Rows = dict[str, dict[int, _Row]]
"""Rows by table and number."""


def repair(path: Path, wait_seconds: float, *, is_ours: bool) -> str:
    """Replace a database by one with every readable row; return a report for the user.

    is_ours: False if it may belong to another program: if no row looks like ours, it stays
    unchanged and "" is returned.

    Raises:
        OSError, sqlite3.Error: it cannot be replaced, and stays unchanged.
    """
    recovered = _recovered(path)
    if not (is_ours or recovered["chats"] or recovered["messages"]):
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
        f"the chat database was damaged: {len(recovered['messages']):,} messages were recovered; "
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


# Reading what is left


class _Pages:
    """Pages of a database by number, from 1: those in the file, and newer ones in its log."""

    def __init__(self, data: Bytes, log: Bytes) -> None:
        self._data, self._log = data, log
        self._frames = _frames(log)
        self.numbers = sorted({*range(1, 1 - -len(data) // _PAGE_BYTES), *self._frames})

    def versions(self, number: int) -> Iterator[bytes]:
        """All versions of a page, newest first; a page cut short is padded with zeros."""
        starts = [(self._log, start) for start in reversed(self._frames.get(number, ()))]
        for data, start in (*starts, (self._data, (number - 1) * _PAGE_BYTES)):
            if 0 <= start < len(data):
                yield data[start : start + _PAGE_BYTES].ljust(_PAGE_BYTES, b"\0")


def _frames(log: Bytes) -> dict[int, list[int]]:
    """Offsets of each page in a log, newest last, up to the last committed transaction.

    Frames from earlier uses of the log have another salt. Checksums are ignored, as one damaged
    frame would invalidate all after it.
    """
    frames: dict[int, list[int]] = {}
    salt = None
    uncommitted: list[tuple[int, int]] = []
    size = _FRAME_HEAD_BYTES + _PAGE_BYTES
    for start in range(_LOG_HEAD_BYTES, len(log) - size + 1, size):
        number, ends, its_salt = _FRAME.unpack_from(log, start)
        salt = salt or its_salt  # not that of the head, which may be damaged
        if its_salt != salt:
            continue
        uncommitted.append((number, start + _FRAME_HEAD_BYTES))
        if ends:
            for page, offset in uncommitted:
                frames.setdefault(page, []).append(offset)
            uncommitted.clear()
    return frames


def _recovered(path: Path) -> _Rows:
    """All readable rows. A second row with the same number gets the next free one."""
    found: _Rows = {table: {} for table in _TABLES.values()}
    with ExitStack() as stack:
        data, log = (_mapped(file, stack) for file in (path, _beside(path, LOG)))
        for row in _rows(_Pages(data, log)):
            if row.values[0] is None and (table := _table_of(row.values)):
                _add(found[table], row)
    return found


def _table_of(values: tuple[Value, ...]) -> str | None:
    if len(values) == _CHAT_COLUMNS and not isinstance(values[1], int):
        return "chats"
    return _TABLES.get(len(values))


def _mapped(path: Path, stack: ExitStack) -> Bytes:
    if not path.exists():
        return b""
    file = stack.enter_context(open_regular(path))
    if not path.stat().st_size:
        return b""
    return stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _add(known: dict[int, _Row], row: _Row) -> None:
    before = known.setdefault(row.number, row)
    if before is row or before.values == row.values:
        return
    if before.missing and not row.missing:
        known[row.number] = row
    elif not row.missing:
        number = max(known) + 1
        known[number] = replace(row, number=number)


def _rows(pages: _Pages) -> Iterator[_Row]:
    """Rows of all tables.

    Older versions of a page are read only if the newest is not a valid page, as they also hold
    deleted rows. Their rows come last.
    """
    older: list[tuple[int, bytes]] = []
    for number in pages.numbers:
        for age, page in enumerate(pages.versions(number)):
            if page[_start(number)] in _PAGE_KINDS:
                if age:
                    older.append((number, page))
                else:
                    yield from _rows_of(page, number, pages)
                break
    for number, page in older:
        yield from _rows_of(page, number, pages)


def _start(number: int) -> int:
    """Offset of a page's header; in the first page the file's header precedes it."""
    return _FILE_HEAD_BYTES if number == 1 else 0


def _rows_of(page: bytes, number: int, pages: _Pages) -> Iterator[_Row]:
    start = _start(number)
    if page[start] != _TABLE_LEAF:
        return
    first = start + _LEAF_HEAD_BYTES
    count = int.from_bytes(page[start + 3 : start + 5])
    places = range(first, min(first + _POINTER_BYTES * count, len(page)), _POINTER_BYTES)
    # As in SQLite, an offset beyond the page wraps around.
    offsets = [int.from_bytes(page[at : at + _POINTER_BYTES]) % len(page) for at in places]
    for offset in dict.fromkeys(offsets):
        with suppress(IndexError, ValueError, struct.error):
            yield _row(page, offset, pages)


def _row(page: bytes, offset: int, pages: _Pages) -> _Row:
    """Row of the cell at an offset.

    Raises:
        ValueError, IndexError, struct.error: there is none.
    """
    size, offset = _varint(page, offset)
    number, offset = _varint(page, offset)
    payload = _payload(page, offset, size, pages)
    signed = number - (1 << 64) if number >> 63 else number
    return _Row(signed, _values(payload), max(size - len(payload), 0))


def _payload(page: bytes, offset: int, size: int, pages: _Pages) -> bytes:
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
    while rest > 0 and following not in seen and (more := next(pages.versions(following), b"")):
        seen.add(following)
        parts.append(more[4 : 4 + rest])
        rest -= len(parts[-1])
        following = int.from_bytes(more[:4])
    return b"".join(parts)


def _values(payload: bytes) -> tuple[Value, ...]:
    """Columns of a row; the last one present may be incomplete."""
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
        size = _SIZES[kind] if kind < len(_SIZES) else (kind - len(_SIZES)) // 2
        values.append(_value(kind, payload[offset : offset + size], size))
        offset += size
    return tuple(values)


def _value(kind: int, data: bytes, size: int) -> Value:
    if kind >= len(_SIZES):
        return data.decode(errors="replace") if kind % 2 else data
    if kind in (_ZERO, _ONE):
        return kind - _ZERO
    if not size or len(data) < size:
        return None
    return struct.unpack(">d", data)[0] if kind == _REAL else int.from_bytes(data, signed=True)


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    number = 0
    for index in range(8):
        byte = data[offset + index]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, offset + index + 1
    return number << 8 | data[offset + 8], offset + 9


# Writing it anew


def _write(fresh: Path, recovered: _Rows, wait_seconds: float) -> None:
    with open(fresh, "xb", opener=private_opener):
        pass
    messages = _messages(recovered)
    chats = {number: _chat(row) for number, row in recovered["chats"].items()}
    queued = {as_number(row.values[1]) for row in recovered["queue"].values()}
    for chat in sorted({*messages, *queued} - chats.keys()):
        chats[chat] = _missing_chat(chat, messages.get(chat, []))
    with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        prepare(connection, wait_seconds)
        connection.execute("BEGIN")
        _insert(connection, "chats", list(chats.values()))
        for chat, saved in messages.items():
            rows = linked(sorted(saved, key=lambda one: one.number))
            columns = [(one.number, chat, *astuple(one)[1:-1]) for one in rows]
            _insert(connection, "messages", columns)
        attachments = _columns(recovered["attachments"], as_number, as_text, as_text, as_text)
        _insert(connection, "attachments", attachments)
        queue = _columns(recovered["queue"], as_number, as_text, as_text)
        _insert(connection, "queue", queue)
        for statement in (*_SHOW_NEWEST.split(";"), UNNAMED):
            connection.execute(statement)
        connection.execute("COMMIT")


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        places = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)


def _columns(rows: dict[int, _Row], *kinds: Callable[[object], object]) -> list[tuple[object, ...]]:
    return [
        (number, *(kind(value) for kind, value in zip(kinds, row.values[1:], strict=True)))
        for number, row in sorted(rows.items())
    ]


def _messages(recovered: _Rows) -> dict[int, list[Saved]]:
    """Messages by chat. A lost message with attachments gets their names as its text."""
    messages: dict[int, list[Saved]] = {}
    for row in recovered["messages"].values():
        messages.setdefault(as_number(row.values[1]), []).append(_message(row))
    lost: dict[int, list[str]] = {}
    for row in recovered["attachments"].values():
        if (message := as_number(row.values[1])) not in recovered["messages"]:
            lost.setdefault(message, []).append(as_text(row.values[3]))
    for number, names in lost.items():
        saved = Saved(number, "user", " ".join(names), _CUT, 0.0, _UNKNOWN)
        messages.setdefault(0, []).append(saved)
    return messages


def _message(row: _Row) -> Saved:
    _, _, *columns = row.values
    columns += (_UNKNOWN, 0, "", "", "")[len(columns) - _LINEAR_COLUMNS :]
    saved = Saved.of((row.number, *columns))
    return replace(saved, ending=_CUT) if row.missing else saved


def _missing_chat(number: int, messages: list[Saved]) -> tuple[object, ...]:
    is_named = any(one.role == "user" for one in messages[:1])
    created = messages[0].created if messages else 0.0
    title = "" if is_named else f"{_RECOVERED} {number}"
    return (number, title, "", "", created, created, None, "{}", 0, "")


def _chat(row: _Row) -> tuple[object, ...]:
    _, title, model, system, created, updated, removed, *later = row.values
    settings, shown, folder = (*later, *("{}", 0, "")[len(later) :])
    return (
        row.number, as_text(title), as_text(model), as_text(system), as_seconds(created),
        as_seconds(updated), None if removed is None else as_seconds(removed),
        as_text(settings), as_number(shown), as_text(folder),
    )  # fmt: skip
