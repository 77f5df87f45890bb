"""Answers requests one after the other, as events on the server's event loop."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

from app.engine.asking.answer import Answer
from app.engine.engine import Engine
from app.serve.answers.reply_reader import ReplyReader
from app.serve.dialect import MakeSplitter
from app.serve.reply_events import ReplyEvent

_PACE_SECONDS = 0.03
"""Least time between two batches of a reply, except its last: nobody sees text come later by it."""

_PROCESSOR_PACE_SECONDS = 0.1
"""The same where the model decodes on the processor, and waits while a batch is written and read.
Of 135M parameters at 120 tokens a second, `python -m scripts.serve.measure_server` loses 4 to 5 %
at 0.03 s, 1 to 2 % at 0.1 s, and nothing where the whole reply is one batch."""


async def batches(
    engine: Engine, answer: Answer, splitter: MakeSplitter | None, silence: float
) -> AsyncGenerator[list[ReplyEvent], None]:
    """Have an answer filled, and yield its events, those of a step or of a moment together.

    After so many seconds of silence, in which a prompt may well be read further, it yields none.
    Whoever stops reading ends the answer after its current step.

    Raises:
        RefusedError: the answer failed.
    """
    reader = ReplyReader(answer, splitter)
    changes = _Changes(answer)
    answer.listen(changes.tell)
    try:
        engine.begin(answer)
        pace, due = _pace(engine), 0.0
        told_at = time.monotonic()
        while not reader.is_over:
            now = time.monotonic()
            await changes.wait(due - now, told_at + silence - now)
            batch = list(reader.read())
            now = time.monotonic()
            due = now + pace if batch else 0.0
            if batch or now >= told_at + silence:
                told_at = now
                yield batch
    finally:
        answer.stop()
        answer.listen(_ignore)


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but not longer than so many seconds; returns whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _pace(engine: Engine) -> float:
    loaded = engine.status.loaded
    on_processor = loaded is not None and loaded.info.uses_processor
    return _PROCESSOR_PACE_SECONDS if on_processor else _PACE_SECONDS


class _Changes:
    """Tells the event loop that an answer changed; another thread tells it, once is enough."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._is_over = asyncio.Event()
        self._is_told = False

    def tell(self) -> None:
        """Wake who waits; on any thread, also after the loop has ended."""
        if not self._is_told or self._answer.is_done:
            self._is_told = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._set)

    async def wait(self, least: float, most: float) -> None:
        """Wait for so many seconds or the end; where that is no time, for a change.

        most: seconds to wait for a change.
        """
        if least > 0:
            self._is_told = True  # no step wakes the loop: all are read after this time
            await happens(self._is_over, least)
        else:
            await happens(self._changed, most)
        self._changed.clear()
        self._is_told = False  # before anything is read: a change from now on wakes again

    def _set(self) -> None:
        self._changed.set()
        if self._answer.is_done:
            self._is_over.set()


def _ignore() -> None:
    """What is done where nobody listens."""
