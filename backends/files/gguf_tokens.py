"""Tokens of a GGUF file, and duplicates among them, on which llama.cpp aborts."""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from backends.base import ModelError
from backends.files.brief_mapping import briefly_mapped
from backends.files.gguf_header import parts, read_header

MOST_TOKENS = 1 << 20
"""Largest vocabulary that is checked; actual ones have a quarter of that."""


def require_distinct_tokens(path: Path) -> None:
    """Refuse a file with a duplicate token, on which llama.cpp aborts the process.

    Takes 0.1 s for a vocabulary of 260,000, so only files that never ran here are checked.

    Raises:
        ModelError: it has one, is missing or is damaged.
    """
    header = read_header(parts(path)[0])
    if not header.tokens_at or header.n_vocab > MOST_TOKENS:
        return
    with (
        parts(path)[0].open("rb") as file,
        briefly_mapped(file) as data,
    ):
        repeated = _repeated(data, header.tokens_at + struct.calcsize("<IQ"), header.n_vocab)
    if repeated is not None:
        token = repeated[:40].decode("utf-8", errors="replace")
        why = f"its vocabulary has the token {token!r} twice"
        raise ModelError(f"cannot run {path}", why, "Choose another conversion of the model.")


def _repeated(data: mmap.mmap, at: int, count: int) -> bytes | None:
    """First duplicate in a list of texts that lies within the file."""
    seen: set[int] = set()
    for text in _texts(data, at, count):
        read = text.partition(b"\0")[0]  # as the engine does
        known = hash(read)
        if known in seen and read:  # the engine gives empty ones unique names
            return read
        seen.add(known)
    return None


def tokens_of(path: Path) -> list[bytes]:
    """Texts of a vocabulary by token, empty without one.

    Raises:
        ModelError: the file is missing or damaged.
    """
    first = parts(path)[0]
    header = read_header(first)
    if not header.tokens_at:
        return []
    with first.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return list(_texts(data, header.tokens_at + struct.calcsize("<IQ"), header.n_vocab))


def _texts(data: mmap.mmap, at: int, count: int) -> Iterator[bytes]:
    """Texts of a list that lies within the file."""
    unpack = struct.Struct("<Q").unpack_from
    for _ in range(count):
        (size,) = unpack(data, at)
        yield data[at + 8 : at + 8 + size]
        at += 8 + size
