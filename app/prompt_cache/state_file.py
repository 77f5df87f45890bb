"""File of a saved prompt cache: key, tokens and the engine's state, with integrity checks.

Layout, little-endian: magic (8 bytes), key (32), SHA-256 of the state (32), count of tokens (8),
size of the state (8), the tokens (4 each), SHA-256 of all before (32), the state.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backends.base import CacheState
from backends.base.atomic_file import replacing
from backends.base.checked_file import DamagedFileError, OtherVersionError, TabledFormat
from backends.base.private_file import sync_file
from backends.base.regular_file import open_regular

KEY_BYTES = 32
MAGIC = b"scstate1"
_TOKEN_BYTES = 4
_PIECE_BYTES = 1 << 23
"""Bytes written between two calls of is_wanted."""


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


_FORMAT = TabledFormat(MAGIC, struct.Struct("<32s32sQQ"), _sha256)


@dataclass(frozen=True, slots=True)
class SavedState:
    """A file with an intact head; its state is checked when it is read."""

    path: Path
    key: bytes
    tokens: tuple[int, ...]
    state_bytes: int
    state_digest: bytes


class _UnwantedError(Exception):
    """A state that became unwanted while it was written."""


def read_head(path: Path) -> SavedState | None:
    """Key and tokens of a file, None if it is damaged or has another format.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with open_regular(path) as file:
            fields, table = _FORMAT.read_head(file, _sizes)
    except (DamagedFileError, OtherVersionError):
        return None
    key, digest, _, state_bytes = fields
    tokens = tuple(np.frombuffer(table, dtype="<i4").tolist())
    return SavedState(path, key, tokens, state_bytes, digest)


def read_state(saved: SavedState) -> CacheState | None:
    """State of a file, None if it is damaged.

    Raises:
        OSError: it cannot be read.
        MemoryError: it does not fit.
    """
    with open_regular(saved.path) as file:
        file.seek(_FORMAT.data_offset(_TOKEN_BYTES * len(saved.tokens)))
        state = np.fromfile(file, np.uint8, saved.state_bytes)
    is_intact = hashlib.sha256(state.data).digest() == saved.state_digest
    return state if is_intact else None


def write_state(
    path: Path, key: bytes, tokens: Sequence[int], state: CacheState, is_wanted: Callable[[], bool]
) -> bool:
    """Write a file atomically, readable by its owner only; False if it became unwanted meanwhile.

    Raises:
        OSError: it cannot be written; no partial file is left.
    """
    table = np.array(tokens, dtype="<i4").tobytes()
    digest = hashlib.sha256()
    try:
        with replacing(path) as file:
            file.seek(_FORMAT.data_offset(len(table)))
            for start in range(0, state.size, _PIECE_BYTES):
                if not is_wanted():
                    raise _UnwantedError
                piece = state.data[start : start + _PIECE_BYTES]
                digest.update(piece)
                file.write(piece)
                sync_file(file)  # in pieces: one wait for all of it would hold up a question
            file.seek(0)
            fields = (key, digest.digest(), len(tokens), state.size)
            file.write(_FORMAT.head(fields, table))
    except _UnwantedError:
        return False
    return True


def _sizes(_key: bytes, _digest: bytes, count: int, state_bytes: int) -> tuple[int, int]:
    return _TOKEN_BYTES * count, state_bytes
