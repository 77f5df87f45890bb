"""The file of a saved state: what it is of and its tokens, then the engine's bytes; all checked.

Layout, little-endian: magic (8 bytes), key (32), SHA-256 of the state (32), count of tokens (8),
size of the state (8), the tokens (4 each), SHA-256 of all before (32), the state.
"""

import hashlib
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backends.base import CacheState
from backends.base.private_file import private_opener, temporary_beside
from backends.base.regular_file import open_regular

KEY_BYTES = 32
MAGIC = b"scstate1"
"""The last character is the version of the format."""

_START = struct.Struct("<8s32s32sQQ")
_DIGEST_BYTES = 32
_PIECE_BYTES = 1 << 23
"""Bytes between two questions whether the file is still wanted."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """A file whose head is sound; its state is checked when it is read."""

    path: Path
    key: bytes
    tokens: tuple[int, ...]
    state_bytes: int
    state_digest: bytes


def read_head(path: Path) -> SavedState | None:
    """What a file holds, None where it is damaged or of another format.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(_START.size)
        if len(start) < _START.size:
            return None
        magic, key, digest, count, state_bytes = _START.unpack(start)
        if magic != MAGIC or size != _head_bytes(count) + state_bytes:
            return None
        listed = file.read(4 * count)
        if hashlib.sha256(start + listed).digest() != file.read(_DIGEST_BYTES):
            return None
    tokens = tuple(np.frombuffer(listed, dtype="<i4").tolist())
    return SavedState(path, key, tokens, state_bytes, digest)


def read_state(saved: SavedState) -> CacheState | None:
    """The state of a file, None where it is damaged.

    Raises:
        OSError: it cannot be read.
        MemoryError: it does not fit.
    """
    offset = _head_bytes(len(saved.tokens))
    with open_regular(saved.path) as file:
        file.seek(offset)
        state = np.fromfile(file, np.uint8, saved.state_bytes)
    sound = hashlib.sha256(state.data).digest() == saved.state_digest
    return state if sound else None


def write_state(
    path: Path, key: bytes, tokens: Sequence[int], state: CacheState, is_wanted: Callable[[], bool]
) -> bool:
    """Write a file whole, readable by its owner alone; False if it was no longer wanted.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    fresh = temporary_beside(path)
    digest = hashlib.sha256()
    try:
        with open(fresh, "wb", opener=private_opener) as file:
            file.seek(_head_bytes(len(tokens)))
            for start in range(0, state.size, _PIECE_BYTES):
                if not is_wanted():
                    break
                piece = state.data[start : start + _PIECE_BYTES]
                digest.update(piece)
                file.write(piece)
            else:
                file.seek(0)
                file.write(_head(key, digest.digest(), tokens, state.size))
                file.close()
                fresh.replace(path)
                return True
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
    return False


def _head(key: bytes, digest: bytes, tokens: Sequence[int], state_bytes: int) -> bytes:
    start = _START.pack(MAGIC, key, digest, len(tokens), state_bytes)
    head = start + np.array(tokens, dtype="<i4").tobytes()
    return head + hashlib.sha256(head).digest()


def _head_bytes(tokens: int) -> int:
    return _START.size + 4 * tokens + _DIGEST_BYTES
