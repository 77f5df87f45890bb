"""Keeps the statistics of the ngram drafter on disk between starts.

The file is the sum of all processes: a save reads it, adds the new passages, and replaces it, all
under a lock. Two processes at once lose nothing.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread

from app.learned.ngram_file import NgramFile, UnusableFileError
from backends.base.private_file import FILE_MODE, make_private_folder
from decoding.drafters.ngram.ngram import Ngram
from decoding.drafters.ngram.ngram_statistics import NgramStatistics, Passage

SAVE_SECONDS = 60.0
"""Time between two saves of one process: each replaces a file of up to 13 MB."""

MOST_UNSAVED = 1 << 10
"""Most passages kept for the next save while saves fail."""

_LOCK_SECONDS = 2.0


class NgramMemory:
    """An ngram drafter and its file; saved in the background at the end of a reply."""

    def __init__(self, file: NgramFile, clock: Callable[[], float] = time.monotonic) -> None:
        self.note = ""
        """Why earlier statistics could not be used; empty if they could."""
        self._file = file
        self._clock = clock
        self._next_save = clock()
        self._unsaved: list[Passage] = []
        self._saving: Thread | None = None
        self.drafter = Ngram(self._loaded())

    def _loaded(self) -> NgramStatistics | None:
        statistics = "the ngram statistics of this model"
        try:
            return self._file.read()
        except UnusableFileError as error:
            self.note = (
                f"{statistics} are {error}; the file was set aside, and learning starts over"
            )
            with suppress(OSError):
                self._file.set_aside()
        except OSError as error:
            self.note = f"{statistics} cannot be read: {error.strerror or error}"
        return None

    def keep(self) -> None:
        """Save new passages in the background, at most once every SAVE_SECONDS."""
        self._unsaved += self.drafter.heard()
        del self._unsaved[:-MOST_UNSAVED]
        now = self._clock()
        if not self._unsaved or now < self._next_save or self._is_saving:
            return
        self._next_save = now + SAVE_SECONDS
        passages, self._unsaved = self._unsaved, []
        self._saving = Thread(target=self._save, args=(passages,), name="ngram", daemon=True)
        self._saving.start()

    def save(self) -> None:
        """Save all remaining passages, and wait for it."""
        if self._saving is not None:
            self._saving.join()
        if self._unsaved:
            passages, self._unsaved = self._unsaved, []
            self._save(passages)

    @property
    def _is_saving(self) -> bool:
        return self._saving is not None and self._saving.is_alive()

    def _save(self, passages: Sequence[Passage]) -> None:
        """Add passages to the file; if that fails, keep them for the next save."""
        from filelock import FileLock, Timeout

        path = self._file.path
        try:
            make_private_folder(path.parent)
            with FileLock(path.with_suffix(".lock"), timeout=_LOCK_SECONDS, mode=FILE_MODE):
                statistics = self._on_disk()
                for passage in passages:
                    statistics.learn(passage)
                self._file.write(statistics)
        except (OSError, Timeout, MemoryError, NotImplementedError):  # or no locks on this disk
            self._unsaved[:0] = passages

    def _on_disk(self) -> NgramStatistics:
        try:
            return self._file.read() or NgramStatistics()
        except UnusableFileError:
            self._file.set_aside()
            return NgramStatistics()
