"""Damages the bytes of a valid file, as disks, networks and attackers may."""

import struct
from collections.abc import Callable
from random import Random

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
