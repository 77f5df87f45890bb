"""Rows of tables in the pages of a SQLite file, also of damaged ones: each row by itself.

Format: https://www.sqlite.org/fileformat2.html
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from app.history.page_file import PageFile

Value = int | float | str | bytes | None

_TABLE_LEAF = 0x0D
_PAGE_KINDS = frozenset({0x00, 0x02, 0x05, 0x0A, _TABLE_LEAF})
"""First bytes of pages; that of pages which hold the rest of a long row is 0."""

_LEAF_HEAD_BYTES, _POINTER_BYTES = 8, 2
_FILE_HEAD_BYTES = 100
_MOST_COLUMNS = 32
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
_REAL, _ZERO, _ONE, _BLOB = 7, 8, 9, 12


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row by its number. missing: bytes of its last columns that could not be read."""

    number: int
    values: tuple[Value, ...]
    missing: int = 0


def rows(file: PageFile) -> Iterator[FoundRow]:
    """The rows of all tables.

    Older versions of a page are looked at only where the newest is no page of a database any more,
    as they hold what was deleted since. Those rows come last.
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
    """Where a page begins; the first one has the head of the file before it."""
    return _FILE_HEAD_BYTES if number == 1 else 0


def _kind(page: bytes, number: int) -> int | None:
    return page[_start(number)] if page else None


def _rows_of(page: bytes, number: int, file: PageFile) -> Iterator[FoundRow]:
    if _kind(page, number) != _TABLE_LEAF:
        return
    start = _start(number)
    count = int.from_bytes(page[start + 3 : start + 5])
    first = start + _LEAF_HEAD_BYTES
    last = min(first + _POINTER_BYTES * count, len(page))
    seen: set[int] = set()
    for at in range(first, last, _POINTER_BYTES):
        place = int.from_bytes(page[at : at + _POINTER_BYTES]) % len(page)  # as SQLite reads it
        if place not in seen:
            seen.add(place)
            row = _row(page, place, file)
            if row is not None:
                yield row


def _row(page: bytes, place: int, file: PageFile) -> FoundRow | None:
    """The row whose cell begins at a place, None where there is none."""
    try:
        size, place = _varint(page, place)
        number, place = _varint(page, place)
        payload = _payload(page, place, size, file)
        values = _values(payload)
    except (IndexError, ValueError, struct.error):
        return None
    return FoundRow(_signed(number), values, max(size - len(payload), 0))


def _payload(page: bytes, place: int, size: int, file: PageFile) -> bytes:
    """The bytes of a row: in its page, and those of a long one in a chain of further pages."""
    usable = len(page)
    most = usable - 35
    if size <= most:
        return page[place : place + size]
    least = (usable - 12) * 32 // 255 - 23
    local = least + (size - least) % (usable - 4)
    local = local if local <= most else least
    parts = [page[place : place + local]]
    following = int.from_bytes(page[place + local : place + local + 4])
    rest = size - local
    seen: set[int] = set()
    while rest > 0 and following not in seen and (more := file.page(following)):
        seen.add(following)
        parts.append(more[4 : 4 + rest])
        rest -= len(parts[-1])
        following = int.from_bytes(more[:4])
    return b"".join(parts)


def _values(payload: bytes) -> tuple[Value, ...]:
    """The columns of a row; of the last one that is there at all, as much as there is.

    Raises:
        ValueError, IndexError, struct.error: these are no columns.
    """
    head_bytes, place = _varint(payload, 0)
    kinds: list[int] = []
    while place < head_bytes:
        kind, place = _varint(payload, place)
        kinds.append(kind)
    if not 0 < len(kinds) <= _MOST_COLUMNS:
        raise ValueError
    if place > head_bytes:  # the last kind is damaged, and the columns before it are not
        kinds[-1], place = 0, head_bytes
    values: list[Value] = []
    for kind in kinds:
        size = _size(kind)
        values.append(_value(kind, payload[place : place + size]))
        place += size
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


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the place after it."""
    number = 0
    for index in range(8):
        byte = data[place + index]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, place + index + 1
    return number << 8 | data[place + 8], place + 9


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
