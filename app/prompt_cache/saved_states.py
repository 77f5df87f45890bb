"""Saved prompt caches on disk, bounded in size and age; unusable files are silently removed."""

import hashlib
import shutil
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backends.base import CacheState
from backends.base.safe_files import (
    DamagedFileError,
    OtherVersionError,
    TabledFormat,
    make_private_folder,
    open_regular,
    replacing,
    sync_file,
)

# File of a saved prompt cache: key, tokens and the engine's state, with integrity checks.
#
# Layout, little-endian: magic (8 bytes), key (32), SHA-256 of the state (32), count of tokens (8),
# size of the state (8), the tokens (4 each), SHA-256 of all before (32), the state.

KEY_BYTES = 32
MAGIC = b"scstate1"
_TOKEN_BYTES = 4
_PIECE_BYTES = 1 << 23
"""Bytes written between two calls of is_wanted."""


_HEAD = struct.Struct("<32s32sQQ")
_FORMAT = TabledFormat(MAGIC, _HEAD, lambda data: hashlib.sha256(data).digest())


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


def _sizes(_key: bytes, _digest: bytes, count: int, state_bytes: int) -> tuple[int, int]:
    return _TOKEN_BYTES * count, state_bytes


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


MOST_BYTES = 1_000_000_000
"""Largest total size of all files."""

MOST_FILES = 64
"""Largest number of files: each prompt is compared with all of them."""

KEPT_SECONDS = 7 * 86_400.0
"""Time without use after which a file is removed, as it holds a conversation."""

_SHARE_OF_FREE_DISK = 0.1
_LEFTOVER_SECONDS = 60.0
"""Age from which a partly written file is known to be left by a killed process."""


@dataclass(frozen=True, slots=True)
class SavedStates:
    """A folder of states, each usable only by the model and engine that its key identifies."""

    folder: Path
    most_bytes: int = MOST_BYTES

    def of(self, key: bytes) -> list[SavedState]:
        """States of a key; damaged files among them are removed."""
        states: list[SavedState] = []
        for path in self._files(f"{key.hex()[:16]}-*.state"):
            with suppress(OSError):
                saved = read_head(path)
                if saved is None:
                    _remove(path)
                elif saved.key == key:
                    states.append(saved)
        return states

    def read(self, saved: SavedState) -> CacheState | None:
        """Read a state and mark it as just used; None if it is damaged or does not fit memory."""
        try:
            state = read_state(saved)
            if state is None:
                _remove(saved.path)
            else:
                saved.path.touch()
        except (OSError, MemoryError):
            return None
        return state

    def save(
        self, key: bytes, tokens: Sequence[int], state: CacheState, is_wanted: Callable[[], bool]
    ) -> bool:
        """Save a state, evicting the least recently used ones; False if it became unwanted.

        is_wanted: called every few megabytes. A full disk is no error: nothing is saved then.
        """
        name = hashlib.sha256(np.array(tokens, dtype="<i4").tobytes()).hexdigest()[:16]
        try:
            make_private_folder(self.folder)
            path = self.folder / f"{key.hex()[:16]}-{name}.state"
            if state.size <= self.limit() and not write_state(path, key, tokens, state, is_wanted):
                return False
        except OSError:
            return True
        self._evict()
        return True

    def remove(self, saved: SavedState) -> None:
        _remove(saved.path)

    def clear(self) -> None:
        for path in (*self._files("*.state"), *self._files(".*.state.*")):
            _remove(path)

    def tidy(self) -> None:
        """Delete states that are too old, too many, or only partly written."""
        now = time.time()
        for pattern, most in (("*.state", KEPT_SECONDS), (".*.state.*", _LEFTOVER_SECONDS)):
            for path in self._files(pattern):
                if _of_file(path)[0] < now - most:
                    _remove(path)
        self._evict()

    def limit(self) -> int:
        """Largest total size: at most a tenth of the disk space free without the states."""
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError:
            return 0
        free += sum(_of_file(path)[1] for path in self._files("*.state"))
        return min(self.most_bytes, int(free * _SHARE_OF_FREE_DISK))

    def _evict(self) -> None:
        limit, kept = self.limit(), 0
        files = ((*_of_file(path), path) for path in self._files("*.state"))
        for place, (_, size, path) in enumerate(sorted(files, reverse=True)):
            kept += size
            if kept > limit or place >= MOST_FILES:
                _remove(path)

    def _files(self, pattern: str) -> list[Path]:
        try:
            return list(self.folder.glob(pattern))
        except OSError:
            return []


def _of_file(path: Path) -> tuple[float, int]:
    """When it was used last, and its size; zeros if it has gone."""
    try:
        found = path.stat()
    except OSError:
        return 0.0, 0
    return found.st_mtime, found.st_size


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
