"""The queue of jobs for the engine's thread."""

from collections import deque
from collections.abc import Callable
from threading import Condition

Job = Callable[[], None] | None
"""A unit of work for the engine's thread, None to end it."""


IsUrgent = Callable[[], bool]


def at_once() -> bool:
    """Urgency of a job that somebody waits for."""
    return True


def in_turn() -> bool:
    """Urgency of a job that may wait until a pass is over."""
    return False


class JobQueue:
    """Jobs in turn: any thread puts them, one takes them, which other events may wake too."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Job, IsUrgent]] = deque()
        self._changed = Condition()
        self._is_woken = False

    def put(self, job: Job, is_urgent: IsUrgent = at_once) -> None:
        """Add a job; is_urgent: whether a pass that runs meanwhile shall be dropped for it."""
        with self._changed:
            self._jobs.append((job, is_urgent))
            self._changed.notify()

    def wake(self) -> None:
        """Let the thread that waits for a job look for other work."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def is_empty(self) -> bool:
        """Whether no job waits."""
        return not self._jobs

    def is_urgent(self) -> bool:
        """Whether a job waits for which a pass shall be dropped; any thread may ask."""
        with self._changed:
            waiting = list(self._jobs)
        return any(is_urgent() for _, is_urgent in waiting)

    def wait(self, seconds: float | None) -> None:
        """Wait for a job or a wake, at most so many seconds; None for as long as it takes."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._is_woken, seconds)
            self._is_woken = False

    def take(self) -> Job:
        """The next job; there must be one."""
        with self._changed:
            return self._jobs.popleft()[0]
