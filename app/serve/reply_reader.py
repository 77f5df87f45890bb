"""Reads answers as events on the server's event loop, while the engine fills them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING

from app.engine.answer import Answer, Stage
from app.engine.engine import Engine
from app.engine.reply import Reply
from app.serve.dialect import MakeSplitter
from app.serve.refusal import refusal_of, stopped
from app.tools import events
from decoding.events import FinishReason

if TYPE_CHECKING:
    from app.tools.reply_splitter import ReplySplitter

_REASONS = {
    FinishReason.STOP: events.EndReason.STOP,
    FinishReason.LENGTH: events.EndReason.LENGTH,
    FinishReason.CONTEXT: events.EndReason.CONTEXT,
}


_COUNTED = (
    "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "prefill_seconds",
    "decode_seconds", "decode_tokens_per_second", "drafted", "accepted",
)  # fmt: skip
"""Of a Usage, as a reply counts them."""


class ReplyReader:
    """Events of one answer, of which each call returns those since the last one."""

    def __init__(self, answer: Answer, make_splitter: MakeSplitter | None) -> None:
        self._answer = answer
        self._make_splitter = make_splitter
        self._splitter: ReplySplitter | None = None
        self._read = 0
        """Characters of the text that were read."""
        self._told = 0
        """Tokens whose log probabilities were read."""
        self._has_begun = False
        self.is_over = False
        """Whether all events were read."""

    def read(self) -> Iterator[events.ReplyEvent]:
        """Yield the events since the last call; the last of all is Ended.

        Raises:
            RefusedError: the answer failed, or was stopped by others than who asked.
        """
        answer = self._answer
        self.is_over = is_done = answer.is_done  # first: what follows is then complete
        if is_done and answer.error is not None:
            raise refusal_of(answer.error)
        reply = answer.reply
        if is_done and reply.finish_reason in (None, FinishReason.CANCELLED):
            raise stopped()
        if answer.stage is not Stage.ANSWERING and not is_done:
            return
        if not self._has_begun:
            self._has_begun = True
            if self._make_splitter is not None:
                self._splitter = self._make_splitter(answer.form)
            statistics = reply.statistics
            prompt_tokens, cached = statistics.prompt_tokens, statistics.cached_prompt_tokens
            yield events.Begun(answer.model, prompt_tokens, cached)
        yield from self._added(reply)
        if is_done:
            yield from self._end(reply)

    def _added(self, reply: Reply) -> Iterator[events.ReplyEvent]:
        text = reply.text
        added, self._read = text[self._read :], len(text)
        if added:
            delta = events.TextDelta(added, tuple(self._logprobs(reply)))
            yield from self._splitter.feed(delta) if self._splitter else (delta,)

    def _logprobs(self, reply: Reply) -> Iterator[events.TokenLogprob]:
        """Log probabilities of the tokens that begin in the text read so far, and were not told.

        So neither tokens after a stop text are told, nor the one that ends the reply.
        """
        while self._told < min(len(reply.logprobs), len(reply.token_ends)):
            begins_at = reply.token_ends[self._told - 1] if self._told else 0
            if begins_at >= self._read:
                return
            told, data = reply.logprobs[self._told], reply.token_bytes
            end = reply.token_ends[self._told]
            self._told += 1
            top = tuple(
                events.Alternative(token, data[token], logprob) for token, logprob in told.top
            )
            yield events.TokenLogprob(data[told.token], told.logprob, top, begins_at, end)

    def _end(self, reply: Reply) -> Iterator[events.ReplyEvent]:
        has_calls = False
        if self._splitter is not None:
            yield from self._splitter.finish()
            has_calls = self._splitter.has_calls
        reason = _REASONS[reply.finish_reason or FinishReason.STOP]
        stop_text = ""
        if has_calls and reason is events.EndReason.STOP:
            reason = events.EndReason.TOOL_CALLS
        elif reply.stop_text in self._answer.request.options.stops:
            reason, stop_text = events.EndReason.STOP_SEQUENCE, reply.stop_text
        yield events.Ended(reason, self._usage(reply), stop_text)

    def _usage(self, reply: Reply) -> events.Usage:
        statistics, predicted = reply.statistics, reply.predicted
        reasoning = self._splitter.reasoning_length if self._splitter else 0
        return events.Usage(
            reasoning_tokens=sum(0 < end <= reasoning for end in reply.token_ends),
            accepted_prediction_tokens=predicted.accepted if predicted else 0,
            rejected_prediction_tokens=predicted.rejected if predicted else 0,
            **{name: getattr(statistics, name) for name in _COUNTED},
        )


_PACE_SECONDS = 0.03
"""Least time between two batches of a reply, except its last: nobody sees text come later by it."""

_PROCESSOR_PACE_SECONDS = 0.1
"""The same where the model decodes on the processor, and waits while a batch is written and read.
Of 135M parameters at 120 tokens a second, the server lost 4 to 5 %
at 0.03 s, 1 to 2 % at 0.1 s, and nothing where the whole reply is one batch."""


async def batches(
    engine: Engine, answer: Answer, splitter: MakeSplitter | None, silence: float
) -> AsyncGenerator[list[events.ReplyEvent], None]:
    """Yield the events of an answer that was begun, those of a step or of a moment together.

    After so many seconds of silence, in which a prompt may well be read further, it yields none.
    Whoever stops reading ends the answer after its current step.

    Raises:
        RefusedError: the answer failed.
    """
    reader = ReplyReader(answer, splitter)
    changes = _Changes(answer, _pace(engine))
    answer.listen(changes.tell)
    try:
        told_at = time.monotonic()
        while not reader.is_over:
            await changes.wait(told_at + silence - time.monotonic())
            if not (batch := list(reader.read())):
                changes.hasten()
                batch = list(reader.read())
            now = time.monotonic()
            if batch or now >= told_at + silence:
                told_at = now
                yield batch
    finally:
        if not answer.is_done:
            answer.stop()


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
    """Tells the event loop that an answer changed; another thread tells it, once is enough.

    The first step after a rest of pace seconds does: a timer would wake the loop in mid-pass.
    """

    def __init__(self, answer: Answer, pace: float) -> None:
        self._answer = answer
        self._pace = pace
        self._due = 0.0
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._is_told = False

    def tell(self) -> None:
        """Wake who waits; on any thread, also after the loop has ended."""
        is_due = not self._is_told and time.monotonic() >= self._due
        # The end of the text comes before the end: what is kept of a reply is on disk by then.
        if is_due or self._answer.is_done or self._answer.finish_reason is not None:
            self._is_told = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self, most: float) -> None:
        """Wait for a change, but not longer than so many seconds; then rest."""
        await happens(self._changed, most)
        self._changed.clear()
        self._due = time.monotonic() + self._pace
        self._is_told = False  # before anything is read: a change after the rest wakes again

    def hasten(self) -> None:
        """Do not rest: nothing was there to be read."""
        self._due = 0.0
