"""Progress of a download: bytes, rate, remaining time."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from models.byte_sizes import size_text

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
        """Remaining time at the present rate, None if unknown."""
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
