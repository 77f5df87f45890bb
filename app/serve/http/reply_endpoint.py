"""Serves one dialect: reads a request, waits for its turn, and writes the reply as it comes."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app.engine.asking.answer import Answer
from app.serve.answers.batches import batches, happens
from app.serve.answers.refused_field import with_field
from app.serve.answers.turns import Turn
from app.serve.dialect import AskedReply, Dialect, Frame, ReplyWriter
from app.serve.http import sse
from app.serve.http.incoming import headers_of, json_body, program_of, until_gone
from app.serve.refusal import RefusedError, stopped
from app.serve.reply_events import ReplyEvent
from app.serve.served_engine import ServedEngine

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies pass each piece on at once
]

_Batch = tuple[int, list[ReplyEvent]]
"""Which choice, and its events of one step."""


class ReplyEndpoint:
    """An ASGI application for the path of a dialect."""

    def __init__(self, dialect: Dialect, served: ServedEngine) -> None:
        self._dialect = dialect
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; it ends with the connection, wherever it is."""
        self._served.turns.check_open()  # before a body is read that would be refused
        try:
            with self._served.reading.take():
                body = await json_body(scope, receive, self._served.limits)
        except ClientDisconnect:
            return
        asked, writer = self._dialect.read(body, self._served.loaded)
        program = program_of(headers_of(scope))
        reply = asyncio.ensure_future(self._reply(asked, writer, program, send))
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            await asyncio.wait({reply, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not reply.done():
                reply.cancel()
                if gone.done():
                    self._served.metrics.count_gone()
            gone.cancel()
            await asyncio.wait({reply, gone})
        if not reply.cancelled():
            reply.result()

    async def _reply(
        self, asked: AskedReply, writer: ReplyWriter, program: str, send: Send
    ) -> None:
        requests = [replace(request, program=program) for request in asked.requests]
        answers = [Answer(request) for request in requests]
        with self._served.turns.enter() as turn:
            try:
                await self._served.check(answers[:: asked.choices])
            except RefusedError as refusal:
                raise with_field(refusal, asked) from refusal
            replies = self._replies(asked, answers, turn)
            if asked.is_streamed:
                await self._stream(replies, writer, send)
            else:
                await self._whole(replies, writer, send)

    async def _replies(
        self, asked: AskedReply, answers: list[Answer], turn: Turn
    ) -> AsyncGenerator[_Batch, None]:
        """Yield the events of all choices, answered in this turn; none after each silence."""
        served, silence = self._served, self._served.limits.heartbeat_seconds
        while not turn.come.is_set():
            await happens(turn.come, silence)
            yield 0, []  # also when it comes: the next silence is counted from here
        for choice, answer in enumerate(answers):
            try:
                async with aclosing(batches(served.engine, answer, asked.splitter, silence)) as new:
                    async for batch in new:
                        yield choice, batch
            except RefusedError as refusal:
                raise with_field(refusal, asked) from refusal
            finally:
                served.metrics.count_when_done(answer)

    async def _stream(
        self, replies: AsyncGenerator[_Batch, None], writer: ReplyWriter, send: Send
    ) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        await _send_part(send, sse.COMMENT)  # some clients see the headers with the first bytes
        try:
            async for choice, batch in replies:
                part = _written(writer, choice, batch) if batch else _beat(writer)
                await _send_part(send, part)
            await _send_frames(send, writer.end())
        except RefusedError as refusal:
            await _send_frames(send, writer.failure(refusal))
        except asyncio.CancelledError:
            if not self._served.turns.is_closed:
                raise
            await _send_frames(send, writer.failure(stopped()))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _whole(
        self, replies: AsyncGenerator[_Batch, None], writer: ReplyWriter, send: Send
    ) -> None:
        choices: dict[int, list[ReplyEvent]] = {}
        async with aclosing(replies):
            async for choice, batch in replies:
                choices.setdefault(choice, []).extend(batch)
        body = sse.json_text(writer.body(list(choices.values()))).encode()
        start = {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
            ],
        }
        await send(start)
        await send({"type": "http.response.body", "body": body, "more_body": False})


def _written(writer: ReplyWriter, choice: int, events: list[ReplyEvent]) -> bytes:
    return b"".join(sse.encoded(writer.frames(choice, event)) for event in events)


def _beat(writer: ReplyWriter) -> bytes:
    frame = writer.heartbeat()
    return sse.COMMENT if frame is None else sse.encoded([frame])


async def _send_frames(send: Send, frames: Iterable[Frame]) -> None:
    await _send_part(send, sse.encoded(frames))


async def _send_part(send: Send, part: bytes) -> None:
    if part:
        await send({"type": "http.response.body", "body": part, "more_body": True})
