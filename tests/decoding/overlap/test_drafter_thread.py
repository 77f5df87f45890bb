"""A thread for a drafter's passes: one at a time, stopped between two, and its faults told."""

from collections.abc import Iterator
from threading import Event, current_thread, main_thread

import pytest

from decoding.drafters.overlapping import DrafterThread

SECONDS = 60.0
"""Until a test that hangs is ended."""


@pytest.fixture
def thread() -> Iterator[DrafterThread]:
    thread = DrafterThread()
    yield thread
    thread.close()


def test_passes_run_on_a_thread_of_their_own_until_the_last(thread: DrafterThread) -> None:
    names, ended = set[str](), Event()

    def passes() -> Iterator[None]:
        for _ in range(3):
            names.add(current_thread().name)
            yield
        ended.set()

    for _ in range(2):
        thread.start(passes())
        assert ended.wait(SECONDS)
        thread.stop()
        ended.clear()
    assert len(names) == 1, "a thread that is kept, as engines keep others for it"
    assert main_thread().name not in names


def test_stop_waits_for_the_present_pass_and_starts_no_other(thread: DrafterThread) -> None:
    began, may_end, done = Event(), Event(), list[int]()

    def passes() -> Iterator[None]:
        for number in range(1000):
            began.set()
            assert may_end.wait(SECONDS)
            done.append(number)
            if number == 0:
                thread._is_stopped = True  # as stop does, which the test could not call in time
            yield

    thread.start(passes())
    assert began.wait(SECONDS)
    assert not done
    may_end.set()
    thread.stop()
    assert done == [0]


def test_what_a_pass_raised_is_raised_once_by_stop(thread: DrafterThread) -> None:
    began = Event()

    def passes() -> Iterator[None]:
        began.set()
        raise RuntimeError("the engine failed")
        yield

    thread.start(passes())
    assert began.wait(SECONDS)
    with pytest.raises(RuntimeError, match="the engine failed"):
        thread.stop()
    thread.stop()
    thread.start(iter([None]))
    thread.stop()


def test_a_round_must_have_been_stopped_before_the_next(thread: DrafterThread) -> None:
    thread.start(iter([None]))
    with pytest.raises(AssertionError, match="not stopped"):
        thread.start(iter([None]))


def test_closing_ends_it_whatever_a_pass_raised() -> None:
    def passes() -> Iterator[None]:
        raise RuntimeError("the engine failed")
        yield

    thread = DrafterThread()
    thread.start(passes())
    thread.close()
    thread.close()
    with pytest.raises(RuntimeError):
        thread.start(iter([None]))
