"""Reads single rows from the pages of a SQLite file, which may be damaged.

Format: https://www.sqlite.org/fileformat2.html
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from app.history.page_file import PageFile

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
