"""Damages the bytes of a valid file, as disks, networks and attackers may."""

import math
import re
import struct
from collections.abc import Callable
from random import Random
from typing import Any, cast

_LYING_NUMBERS = (
    0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, (1 << 24) + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
    1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
_LONGEST_BLOCK = 4096

Mutation = Callable[[bytearray, Random], None]


def damaged(good: bytes, random: Random) -> bytes:
    """Apply one to four kinds of damage, reproducible by the state of random."""
    data = bytearray(good)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice(MUTATIONS)(data, random)
    return bytes(data)


def flip_bits(data: bytearray, random: Random) -> None:
    """Flip single bits."""
    for _ in range(random.choice((1, 2, 8, 64))):
        if data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def write_bytes(data: bytearray, random: Random) -> None:
    """Write random bytes over a block."""
    start, end = _block(data, random)
    data[start:end] = random.randbytes(end - start)


def write_zeros(data: bytearray, random: Random) -> None:
    """Zero a block, as after a lost write."""
    start, end = _block(data, random)
    data[start:end] = bytes(end - start)


def lie(data: bytearray, random: Random) -> None:
    """Write an extreme number at a possible length, count or offset."""
    form = random.choice(("<H", "<I", "<Q", ">I", ">Q"))
    size = struct.calcsize(form)
    if len(data) < size:
        return
    # Lengths stand in the first bytes of most formats.
    end = random.choice((min(len(data), 256), len(data)))
    start = random.randrange(end - size + 1)
    number = random.choice(_LYING_NUMBERS) & ((1 << 8 * size) - 1)
    struct.pack_into(form, data, start, number)


def cut(data: bytearray, random: Random) -> None:
    """Truncate the file."""
    del data[random.randrange(len(data) + 1) :]


def leave_out(data: bytearray, random: Random) -> None:
    """Remove a block."""
    start, end = _block(data, random)
    del data[start:end]


def repeat(data: bytearray, random: Random) -> None:
    """Write a block twice."""
    start, end = _block(data, random)
    data[start:start] = data[start:end]


def move(data: bytearray, random: Random) -> None:
    """Move a block."""
    start, end = _block(data, random)
    block = bytes(data[start:end])
    at = random.randrange(len(data) + 1)
    data[at : at + len(block)] = block


def append(data: bytearray, random: Random) -> None:
    """Append bytes."""
    data += random.randbytes(random.choice((1, 16, _LONGEST_BLOCK)))


def _block(data: bytearray, random: Random) -> tuple[int, int]:
    if not data:
        return 0, 0
    start = random.randrange(len(data))
    return start, min(len(data), start + random.choice((1, 4, 32, 512, _LONGEST_BLOCK)))


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits, write_bytes, write_zeros, lie, lie, cut, leave_out, repeat, move, append,
)  # fmt: skip


_VALUE = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d[\d.eE+_-]*|true|false|null')
_ODD_TEXTS = (
    b"1" + b"0" * 400, b"-1" + b"0" * 400, b"1e400", b"-1", b"0", b"0.0", b"1e-320", b"true",
    b"null",
    b"[]", b"{}", b'""', b"NaN", b"Infinity", b"-Infinity", b"nan", b"inf", b"9" * 5000,
    b"9223372036854775808", b'"\\ud800"', b'"\\u0000"', b'"\xff"', b"0x" + b"f" * 6000,
    b'"' + b"a" * 5000 + b'"', b"[[[[1]]]]", b'{"a": {"a": {}}}', b"'\\'", b"1979-05-27",
    b'"../../x"',
)  # fmt: skip


def damaged_text(good: bytes, random: Random) -> bytes:
    """Replace values by odd ones, such as deep nests and long keys, or damage bytes."""
    if random.random() < 0.4:
        return damaged(good, random)
    data = good
    for _ in range(random.choice((1, 1, 2, 5))):
        places = list(_VALUE.finditer(data))
        if not places:
            break
        place = random.choice(places)
        odd = _deep(random) if random.random() < 0.1 else random.choice(_ODD_TEXTS)
        data = data[: place.start()] + odd + data[place.end() :]
    return data


def _deep(random: Random) -> bytes:
    depth = random.choice((33, 1000, 100_000))
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"{a=", b"}"), (b"a.", b"")))
    return opening * depth + b"1" + closing * random.choice((0, depth))


_ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 513, (1 << 31) - 1, 1 << 32, 1 << 63, 1 << 64, 10**400, 0.5,
    -1e-6, 1e308, math.nan, math.inf, "", "llama", "\0", "\ud800", "9" * 5000, [], [[]], [0] * 5000,
    {}, {"a": {}}, [-1, 1], [1, 0], [0, 1 << 63],
)  # fmt: skip


def changed(value: Any, random: Random) -> Any:
    """Copy with one to three values replaced, removed or deeply nested."""
    for _ in range(random.choice((1, 1, 2, 3))):
        value = _changed(value, random)
    return value


def _changed(value: Any, random: Random) -> Any:
    """Change a value at a random path."""
    if isinstance(value, dict) and value and random.randrange(5):
        table = dict(cast("dict[str, Any]", value))
        key = random.choice(list(table))
        if random.randrange(8) == 0:
            del table[key]
        elif random.randrange(12) == 0:
            table[f"{key}x"] = table.pop(key)
        else:
            table[key] = _changed(table[key], random)
        return table
    if isinstance(value, list) and value and random.randrange(3):
        items = list(cast("list[Any]", value))
        at = random.randrange(len(items))
        items[at] = _changed(items[at], random)
        return items
    if random.randrange(40) == 0:
        deep: list[Any] = []
        for _ in range(900):  # more than json can write is damage to bytes
            deep = [deep]
        return deep
    return random.choice(_ODD_VALUES)
