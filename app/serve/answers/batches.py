"""Answers requests one after the other, as events on the server's event loop."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TypeVar

from app.engine.asking.answer import Answer
from app.engine.engine import Engine
from app.serve.answers.reply_reader import ReplyReader
from app.serve.dialect import MakeSplitter
from app.serve.reply_events import ReplyEvent

_Item = TypeVar("_Item")

_PACE_SECONDS = 0.03
"""Least time between two batches of a reply. Writing one takes about 0.3 ms of a processor that the
model decodes on, 3 % of a small model's step of 10 ms; nobody sees text come later by this much."""


async def batches(
    engine: Engine, answer: Answer, splitter: MakeSplitter | None
) -> AsyncGenerator[list[ReplyEvent], None]:
    """Have an answer filled, and yield its events, those of a step or of a moment together.

    Whoever stops reading them ends the answer after its current step.

    Raises:
        RefusedError: the answer failed.
    """
    reader = ReplyReader(answer, splitter)
    changes = _Changes()
    answer.listen(changes.tell)
    try:
        engine.begin(answer)
        due = 0.0
        while not reader.is_over:
            await changes.wait()
            await asyncio.sleep(due - time.monotonic())
            if batch := list(reader.read()):
                due = time.monotonic() + _PACE_SECONDS
                yield batch
    finally:
        answer.stop()
        answer.listen(_ignore)


async def paced(items: AsyncGenerator[_Item, None], seconds: float) -> AsyncIterator[_Item | None]:
    """Yield items as they come, and None after each silence of so many seconds."""
    async with aclosing(items):
        while True:
            following = asyncio.ensure_future(anext(items))
            try:
                while not (await asyncio.wait({following}, timeout=seconds))[0]:
                    yield None
                item = following.result()
            except StopAsyncIteration:
                return
            finally:
                following.cancel()
                await asyncio.wait({following})
            yield item


class _Changes:
    """Tells the event loop that something changed; another thread tells it, once is enough."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._is_told = False

    def tell(self) -> None:
        """Wake who waits; on any thread, also after the loop has ended."""
        if not self._is_told:
            self._is_told = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self) -> None:
        """Wait for the next change since the last wait."""
        await self._changed.wait()
        self._changed.clear()
        self._is_told = False  # before anything is read: a change from now on wakes again


def _ignore() -> None:
    """What is done where nobody listens."""
