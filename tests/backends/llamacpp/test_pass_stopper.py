"""A long pass in memory is stopped before its end, and leaves no trace."""

from collections.abc import Iterator
from contextlib import closing
from threading import Thread
from typing import Any

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends.base import Context, Model, PassStoppedError
from backends.base.model import stopping_passes
from backends.llamacpp import pass_callbacks as pass_stopper

PROMPT = list(range(1000, 1032))
LONG = list(range(2000, 2256))


@pytest.fixture
def context(demo: Model) -> Iterator[Context]:
    with closing(demo.open(512)) as context:
        yield context


@pytest.mark.slow
def test_a_long_pass_is_stopped_and_what_was_read_before_stays(context: Context) -> None:
    assert context.stops_passes
    context.forward(PROMPT, 0)
    asked: list[int] = []

    def is_stopped() -> bool:
        asked.append(context.length)
        return True

    with stopping_passes(is_stopped), pytest.raises(PassStoppedError):
        context.forward(LONG, 0)
    assert len(asked) == 1
    assert context.tokens == PROMPT
    stopped = context.forward(LONG, 1).copy()
    context.truncate(0)
    context.forward(PROMPT, 0)
    assert np.array_equal(context.forward(LONG, 1), stopped)


@pytest.mark.slow
def test_a_pass_that_nothing_stops_runs_to_its_end(context: Context) -> None:
    asked: list[int] = []

    def is_stopped() -> bool:
        asked.append(context.length)
        return False

    with stopping_passes(is_stopped):
        within = context.forward(LONG, 1).copy()
    assert asked
    context.truncate(0)
    assert np.array_equal(context.forward(LONG, 1), within)


@pytest.mark.slow
def test_without_a_thread_to_watch_a_pass_the_next_ones_are_as_ever(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = context.forward(LONG, 1).copy()
    context.truncate(0)
    callbacks: list[object] = []
    told: Any = pass_stopper.api.llama_set_abort_callback

    def noting(pointer: object, callback: object, data: object) -> None:
        callbacks.append(callback)
        told(pointer, callback, data)

    def refused(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(pass_stopper.api, "llama_set_abort_callback", noting)
        patch.setattr(Thread, "start", refused)
        with stopping_passes(lambda: True), pytest.raises(RuntimeError):
            context.forward(LONG, 0)
    assert callbacks[-1] is pass_stopper._NEVER
    assert np.array_equal(context.forward(LONG, 1), expected)


def test_short_passes_and_drafts_are_not_watched(context: Context) -> None:
    def is_stopped() -> bool:
        raise AssertionError("a thread watches it")

    with stopping_passes(is_stopped):
        context.forward(PROMPT[:8], 1)
        context.forward(PROMPT, len(PROMPT))


def test_a_running_state_is_stopped_only_where_it_can_come_back(hybrid: Model) -> None:
    with closing(hybrid.open(256)) as context:
        context.forward(range(9, 18), 0)
        with stopping_passes(lambda: True):
            context.forward(range(20, 52), 0)  # it would lose what was read before
        assert context.length == 9 + 32
        assert context.stops_passes
