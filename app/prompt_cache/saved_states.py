"""Prompt caches kept on disk, bounded in size and age; what cannot be used is dropped, silently."""

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
"""What all files take together at most."""

MOST_FILES = 64
"""Each prompt is compared with all of them, which takes time and memory."""

KEPT_SECONDS = 7 * 86_400.0
"""After this time without use a file goes: it holds a conversation."""

_SHARE_OF_FREE_DISK = 0.1
_LEFTOVER_SECONDS = 60.0
"""A file half written that nobody wrote to for so long was left by a program that was killed."""


@dataclass(frozen=True, slots=True)
class SavedStates:
    """A folder of states. Their key says by what they were computed: a state fits no other."""

    folder: Path
    most_bytes: int = MOST_BYTES

    def of(self, key: bytes) -> list[SavedState]:
        """The states under a key; damaged files among them are removed."""
        found: list[SavedState] = []
        for path in self._files(f"{key.hex()[:16]}-*.state"):
            with suppress(OSError):
                saved = read_head(path)
                if saved is None:
                    _remove(path)
                elif saved.key == key:
                    found.append(saved)
        return found

    def read(self, saved: SavedState) -> CacheState | None:
        """The state itself, which then counts as used last; None where it cannot be had."""
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
        """Keep a state, and remove those used longest ago for it; False if it was given up.

        is_wanted is asked every few megabytes. A full disk is no error: then nothing is kept.
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
        """Forget one state."""
        _remove(saved.path)

    def clear(self) -> None:
        """Forget all."""
        for path in (*self._files("*.state"), *self._files(".*.state.*")):
            _remove(path)

    def tidy(self) -> None:
        """Remove what is too old, too much, or was left half written."""
        now = time.time()
        for path in self._files("*.state"):
            if _used(path) < now - KEPT_SECONDS:
                _remove(path)
        for path in self._files(".*.state.*"):
            if _used(path) < now - _LEFTOVER_SECONDS:
                _remove(path)
        self._evict()

    def limit(self) -> int:
        """Bytes that may be kept: at most a tenth of what the disk has free without them."""
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
