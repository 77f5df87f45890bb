"""Settings of downloads, and their progress: bytes, rate, remaining time."""

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from models.byte_sizes import size_text

_HUB = "https://huggingface.co"
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True, slots=True)
class HubSettings:
    endpoint: str
    cache: Path
    """Cache of huggingface_hub, shared with other programs."""
    receipts: Path
    """File that records what specchat downloaded into the cache."""
    offline: bool = False
    timeout: float = 10.0
    """Seconds of silence after which a connection counts as lost."""
    attempts: int = 6
    """Most attempts for a file, counted anew whenever bytes arrive."""
    first_wait: float = 1.0
    """Seconds before the second attempt; each further wait doubles."""
    window: float = 60.0
    """Seconds in which a response must start, and then deliver window_bytes each time."""
    window_bytes: int = 60_000
    """With the window 1 kB/s: a fifth of a dial-up line's. A gigabyte would take twelve days."""

    @classmethod
    def of_environment(cls, receipts: Path, offline: bool = False) -> Self:
        variables = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        off = any(os.environ.get(name, "").upper() in _TRUE for name in variables)
        endpoint = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
        return cls(endpoint, hub_cache(), receipts, offline or off)

    def folder(self, repository: str) -> Path:
        return self.cache / f"models--{repository.replace('/', '--')}"


def hub_cache() -> Path:
    """Cache folder by the rules of huggingface_hub, without importing it."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    home = Path(os.environ.get("HF_HOME") or caches / "huggingface")
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    chosen = os.path.expandvars(named or home / "hub")
    return Path(chosen).expanduser().absolute()


_WINDOW_SECONDS = 5.0
_MARK_SECONDS = 0.1


class Phase(StrEnum):
    ASKING = "asking the hub"
    RECEIVING = "downloading"
    WAITING = "waiting for the connection"
    CHECKING = "checking"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress at one moment; bytes are of the phase, over all files."""

    phase: Phase
    done_bytes: int = 0
    total_bytes: int | None = None
    bytes_per_second: float | None = None
    """Rate over the last seconds, None before anything arrived."""

    @property
    def remaining_seconds(self) -> float | None:
        if self.total_bytes is None or not self.bytes_per_second:
            return None
        return (self.total_bytes - self.done_bytes) / self.bytes_per_second


def describe(progress: Progress) -> str:
    done, total = progress.done_bytes, progress.total_bytes
    if total is None:
        return f"{progress.phase} …"
    share = f"{100 * done // max(total, 1):3d} %"
    shown = [f"{progress.phase} {share}  {size_text(done)} of {size_text(total)}"]
    if progress.bytes_per_second:
        shown.append(f"{size_text(progress.bytes_per_second)}/s")
    if progress.remaining_seconds is not None:
        shown.append(f"{_duration(progress.remaining_seconds)} left")
    return ", ".join(shown)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Meter:
    def __init__(
        self, phase: Phase, total: int, done: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._phase, self._total, self._clock = phase, total, clock
        self._done = done
        self._marks = deque([(clock(), done)])

    def add(self, count: int) -> Progress:
        """Progress after count more bytes; a negative count takes bytes back."""
        now = self._clock()
        self._done += count
        if count < 0:
            self._marks.clear()
        elif len(self._marks) > 1 and now - self._marks[-2][0] < _MARK_SECONDS:
            self._marks.pop()
        self._marks.append((now, self._done))
        while self._marks[0][0] < now - _WINDOW_SECONDS and len(self._marks) > 2:
            self._marks.popleft()
        return self._at(self._phase)

    def waiting(self) -> Progress:
        """Progress while waiting for the connection; the rate restarts after it."""
        self._marks = deque([(self._clock(), self._done)])
        return self._at(Phase.WAITING)

    def _at(self, phase: Phase) -> Progress:
        (began, before), (now, done) = self._marks[0], self._marks[-1]
        rate = (done - before) / (now - began) if now > began else None
        return Progress(phase, self._done, self._total, rate)
