"""Idle time: a job comes before all work, and the more urgent work before the other."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread

import pytest

from app.engine.jobs import IdleWork, JobQueue
from backends.base.model import pass_is_stopped
from tests.fixtures.clock import Clock


@dataclass
class Failing:
    """Work that fails where it is asked when it is due, or where it is done."""

    fails_at: str
    asked: int = 0
    runs: int = 0

    def due_in(self, idle: float) -> float | None:
        self.asked += 1
        if self.fails_at == "due_in":
            raise ValueError(self.fails_at)
        return 0.0

    def run(self, is_wanted: Callable[[], bool]) -> None:
        self.runs += 1
        raise OSError(self.fails_at)


@dataclass
class Work:
    """Work of so many parts, due after so many idle seconds."""

    name: str
    log: list[str]
    clock: Clock
    parts: int
    after: float = 0.0
    then: dict[int, Callable[[], None]] = field(default_factory=dict[int, Callable[[], None]])

    def due_in(self, idle: float) -> float | None:
        return self.after - idle if self.parts else None

    def run(self, is_wanted: Callable[[], bool]) -> None:
        while self.parts and is_wanted():
            self.parts -= 1
            self.clock.now += 1.0
            self.log.append(self.name)
            self.then.get(self.parts, lambda: None)()


def job() -> None: ...


def queue() -> tuple[JobQueue, Clock, list[str]]:
    clock = Clock()
    return JobQueue(clock), clock, []


def test_a_waiting_job_comes_before_all_work() -> None:
    jobs, clock, log = queue()
    jobs.put(job)
    assert jobs.next([Work("read", log, clock, 3)]) is job
    assert log == []


def test_work_ends_for_a_job_after_its_present_part_and_goes_on_later() -> None:
    jobs, clock, log = queue()
    work = Work("read", log, clock, 5, then={3: lambda: jobs.put(job)})
    assert jobs.next([work]) is job
    assert log == ["read"] * 2
    work.then = {0: lambda: jobs.put(None)}
    assert jobs.next([work]) is None
    assert log == ["read"] * 5


def test_more_urgent_work_interrupts_and_comes_first() -> None:
    jobs, clock, log = queue()
    read = Work("read", log, clock, 2, after=3.0)
    index = Work("index", log, clock, 5, then={0: lambda: jobs.put(None)})
    assert jobs.next([read, index]) is None
    assert log == ["index"] * 3 + ["read"] * 2 + ["index"] * 2


def test_work_that_waits_for_silence_waits_on_while_keys_are_pressed() -> None:
    jobs, clock, log = queue()
    read = Work("read", log, clock, 4, then={0: jobs.disturb})
    save = Work("save", log, clock, 1, after=4.0)
    third = Work("last", log, clock, 6, then={0: lambda: jobs.put(None)})
    assert jobs.next([read, save, third]) is None
    # Four seconds of reading would have been enough; a key began them anew.
    assert log == [*["read"] * 4, *["last"] * 4, "save", *["last"] * 2]


def test_a_job_wakes_the_thread_that_waits_for_one() -> None:
    jobs = JobQueue()
    taken: list[object] = []
    thread = Thread(target=lambda: taken.append(jobs.next([])))
    thread.start()
    jobs.disturb()
    jobs.put(job)
    thread.join(30)
    assert taken == [job]


def test_a_wake_lets_work_begin_that_was_not_due_before() -> None:
    jobs, clock, log = queue()
    work = Work("read", log, clock, 0, then={0: lambda: jobs.put(None)})
    taken: list[object] = []
    thread = Thread(target=lambda: taken.append(jobs.next([work])))
    thread.start()
    work.parts = 1
    jobs.disturb()
    thread.join(30)
    assert log == ["read"]
    assert taken == [None]


@pytest.mark.parametrize("fails_at", ["due_in", "run"])
@pytest.mark.parametrize("place", [0, 1])
def test_work_that_fails_is_told_once_and_set_aside_until_the_next_job(
    fails_at: str, place: int
) -> None:
    """Whatever fails, the other work is done meanwhile, and none is blamed for it."""
    clock, log, told = Clock(), list[str](), list[str]()
    jobs = JobQueue(clock, report=lambda error: told.append(str(error)))
    # The last part waits long enough for one that fails again and again.
    last = Work("save", log, clock, 3, after=2.0, then={0: lambda: jobs.put(job)})
    works: list[IdleWork] = [Work("read", log, clock, 2), last]
    failing = Failing(fails_at)
    works.insert(place, failing)
    assert jobs.next(works) is job
    assert sorted(log) == ["read"] * 2 + ["save"] * 3
    assert told == [fails_at]
    assert (failing.asked if fails_at == "due_in" else failing.runs) == 1

    jobs.put(job)
    assert jobs.next(works) is job
    last.parts, last.after, last.then = 1, 0.0, {0: lambda: jobs.put(None)}
    assert jobs.next(works) is None
    assert told == [fails_at] * 2


def test_passes_are_stopped_only_for_jobs_that_cannot_wait_for_their_end() -> None:
    jobs, clock, log = queue()
    stopped: list[bool] = []
    urgent = [False]

    def put_each() -> None:
        stopped.append(pass_is_stopped())
        jobs.put(job, is_urgent=False)
        stopped.append(pass_is_stopped())
        jobs.put(job, is_urgent=lambda: urgent[0])
        stopped.append(pass_is_stopped())
        urgent[0] = True
        stopped.append(pass_is_stopped())

    work = Work("read", log, clock, 2, then={1: put_each})
    assert jobs.next([work]) is job
    assert stopped == [False, False, False, True]
    assert log == ["read"]
