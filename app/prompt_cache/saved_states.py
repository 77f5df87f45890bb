"""Saved prompt caches on disk, bounded in size and age; unusable files are silently removed."""

import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.prompt_cache.state_file import SavedState, read_head, read_state, write_state
from backends.base import CacheState
from backends.base.private_file import make_private_folder

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
        """Delete a state."""
        _remove(saved.path)

    def clear(self) -> None:
        """Delete all states."""
        for path in (*self._files("*.state"), *self._files(".*.state.*")):
            _remove(path)

    def tidy(self) -> None:
        """Delete states that are too old, too many, or only partly written."""
        now = time.time()
        for path in self._files("*.state"):
            if _used(path) < now - KEPT_SECONDS:
                _remove(path)
        for path in self._files(".*.state.*"):
            if _used(path) < now - _LEFTOVER_SECONDS:
                _remove(path)
        self._evict()

    def limit(self) -> int:
        """Largest total size: at most a tenth of the disk space free without the states."""
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError:
            return 0
        free += sum(_size(path) for path in self._files("*.state"))
        return min(self.most_bytes, int(free * _SHARE_OF_FREE_DISK))

    def _evict(self) -> None:
        limit, kept = self.limit(), 0
        by_use = sorted(self._files("*.state"), key=_used, reverse=True)
        for place, path in enumerate(by_use):
            kept += _size(path)
            if kept > limit or place >= MOST_FILES:
                _remove(path)

    def _files(self, pattern: str) -> list[Path]:
        try:
            return list(self.folder.glob(pattern))
        except OSError:
            return []


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
