"""The jobs of the engine's thread, and what it does while none waits."""

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from threading import Condition
from typing import Protocol

from backends.base.model import stopping_passes

Job = Callable[[], None] | None
"""A unit of work for the engine's thread, None to end it."""

MEASURE_AFTER_SECONDS = 20.0
"""Idle time before it begins: a measured pass cannot be stopped. A guess; not measured."""

LOOK_AGAIN_SECONDS = 60.0
"""Time after which it is asked again whether anything may be measured."""


class IdleWork(Protocol):
    def due_in(self, idle: float) -> float | None:
        """Seconds until it is due, after so many idle ones; None if there is nothing to do."""
        ...

    def run(self, is_wanted: Callable[[], bool]) -> None:
        """Work until all is done for now, or is_wanted, called every few ms, returns False.

        Passes are stopped for a job that is urgent, as stopping_passes says.
        """
        ...


class JobQueue:
    """Jobs in turn: any thread puts them, one takes them and does idle work meanwhile.

    A waiting job comes before all idle work, and of that the most urgent first. Work that fails is
    told to report and set aside until the next job: it would fail on and on.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._jobs: deque[tuple[Job, bool | Callable[[], bool]]] = deque()
        self._changed = Condition()
        self._is_woken = False
        self._clock = clock
        self._report = report
        self._aside: set[int] = set()
        """Places of the works that failed since the last job."""
        self._idle_since = clock()

    def put(self, job: Job, *, is_urgent: bool | Callable[[], bool] = True) -> None:
        """Add a job; is_urgent: whether a pass that runs meanwhile shall be dropped for it."""
        with self._changed:
            self._jobs.append((job, is_urgent))
            self._changed.notify()

    def disturb(self) -> None:
        """Note that the user does something: work that waits for silence waits on. Any thread."""
        self._idle_since = self._clock()
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def is_urgent(self) -> bool:
        """Whether a job waits for which a pass shall be dropped; any thread may ask."""
        with self._changed:
            waiting = [is_urgent for _, is_urgent in self._jobs]
        return any(one() if callable(one) else one for one in waiting)

    def first(self) -> tuple[Job, bool] | None:
        """The job whose turn is next, and whether it is urgent; None if none waits.

        For the thread that calls next: no other takes one meanwhile.
        """
        job, is_urgent = self._jobs[0] if self._jobs else (None, None)
        return None if is_urgent is None else (job, is_urgent is not False)

    def take(self) -> Job:
        """Take the first job, of which there is one. For the thread that calls next."""
        with self._changed:
            return self._jobs.popleft()[0]

    def next(self, works: Sequence[IdleWork] = ()) -> Job:
        """The next job; until one comes, idle work is done. works: the most urgent first."""
        self._idle_since = self._clock()
        while not self._jobs:
            due = self._due(works)
            ready = next((place for place, seconds in due if seconds <= 0.0), None)
            if ready is None:
                self._wait(min((seconds for _, seconds in due), default=None))
            else:
                with self._watching(ready), stopping_passes(self.is_urgent):
                    works[ready].run(lambda above=works[:ready]: self._is_wanted(above))
        self._aside.clear()
        return self.take()

    def _wait(self, seconds: float | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._is_woken, seconds)
            self._is_woken = False

    def _due(self, works: Sequence[IdleWork]) -> list[tuple[int, float]]:
        """Seconds until each of the works that has something to do, by its place."""
        idle = self._clock() - self._idle_since
        due: list[tuple[int, float]] = []
        for place, work in enumerate(works):
            if place not in self._aside:
                with self._watching(place):
                    if (seconds := work.due_in(idle)) is not None:
                        due.append((place, seconds))
        return due

    @contextmanager
    def _watching(self, place: int) -> Generator[None]:
        """Set the work at this place aside if it fails within the block."""
        try:
            yield
        except Exception as error:
            self._aside.add(place)
            self._report(error)

    def _is_wanted(self, above: Sequence[IdleWork]) -> bool:
        return all(seconds > 0.0 for _, seconds in self._due(above)) and not self._jobs
