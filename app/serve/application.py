"""The server's ASGI application: routes, replies as they come, and errors."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.engine.answer import Answer
from app.engine.status import Loaded, crash_report
from app.serve.dialect import AskedReply, Dialect, Frame, ReplyEvent, ReplyWriter
from app.serve.incoming import Guard, headers_of, json_body, program_of, until_gone
from app.serve.refusal import RefusalKind, RefusedError, stopped
from app.serve.reply_reader import batches, happens, refusal_of, with_field
from app.serve.served_engine import CONTENT_TYPE, ServedEngine, Turn
from app.settings.answering import Answering

COMMENT = b": the reply is still coming\n\n"
"""What clients skip; it keeps them from giving up in a silence."""


def encoded(frames: Iterable[Frame]) -> bytes:
    """Frames as the bytes of a stream."""
    return b"".join(_encoded(frame) for frame in frames)


def _encoded(frame: Frame) -> bytes:
    name = f"event: {frame.event}\n" if frame.event else ""
    data = frame.data if isinstance(frame.data, str) else json_text(frame.data)
    return f"{name}data: {data}\n\n".encode()


def json_text(data: object) -> str:
    """Compact JSON on one line; an unpaired surrogate, which no text of ours has, is escaped."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text


def information_routes(served: ServedEngine, defaults: Answering) -> Sequence[BaseRoute]:
    """Health, metrics, the model, and what llama-server's clients ask for."""
    created = served.started_at

    def answer(path: str, endpoint: Callable[[Request], Response]) -> Route:
        async def run(request: Request) -> Response:
            return endpoint(request)

        return Route(path, run, methods=["GET"])

    def health(_request: Request) -> Response:
        _ = served.loaded  # refused until it is
        return JSONResponse({"status": "ok"})

    def metrics(_: Request) -> Response:
        return Response(served.metrics.text(), media_type=CONTENT_TYPE)

    def models(_: Request) -> Response:
        model = _model(served.loaded, created)
        # Codex reports an error without a list of models in its own form; it may be empty.
        return JSONResponse({"object": "list", "data": [model], "models": []})

    def model(request: Request) -> Response:
        loaded = served.loaded
        if request.path_params["name"] != loaded.name:
            raise RefusedError(RefusalKind.NOT_FOUND, f"the model here is {loaded.name}", "model")
        return JSONResponse(_model(loaded, created))

    def props(_: Request) -> Response:
        return JSONResponse(_props(served.loaded, defaults))

    return [
        answer("/health", health),
        answer("/metrics", metrics),
        answer("/v1/models", models),
        answer("/v1/models/{name:path}", model),
        answer("/props", props),
    ]


def _model(loaded: Loaded, created: int) -> dict[str, object]:
    info = loaded.info
    return {
        "id": loaded.name,
        "object": "model",
        "created": created,
        "owned_by": "specchat",
        "context_length": loaded.context_size,
        "max_model_len": loaded.context_size,
        "meta": {
            "n_ctx": loaded.context_size,
            "n_ctx_train": info.context_limit,
            "n_params": info.parameters,
            "n_vocab": info.n_vocab,
            "size": info.weight_bytes,
        },
        "drafters": list(loaded.drafters),
    }


def _props(loaded: Loaded, defaults: Answering) -> dict[str, object]:
    """As llama-server tells them; Zed reads the length of the context there."""
    sampling = defaults.sampling
    parameters = {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repeat_penalty,
        "n_predict": -1,
    }
    return {
        "default_generation_settings": {"n_ctx": loaded.context_size, "params": parameters},
        "total_slots": 1,
        "model_alias": loaded.name,
        "modalities": {"vision": False, "audio": False},
    }


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
        await _send_part(send, COMMENT)  # some clients see the headers with the first bytes
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
        body = json_text(writer.body(list(choices.values()))).encode()
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
    return b"".join(encoded(writer.frames(choice, event)) for event in events)


def _beat(writer: ReplyWriter) -> bytes:
    frame = writer.heartbeat()
    return COMMENT if frame is None else encoded([frame])


async def _send_frames(send: Send, frames: Iterable[Frame]) -> None:
    await _send_part(send, encoded(frames))


async def _send_part(send: Send, part: bytes) -> None:
    if part:
        await send({"type": "http.response.body", "body": part, "more_body": True})


_RETRY_SECONDS = "5"

_HEADERS: Mapping[RefusalKind, Mapping[str, str]] = {
    RefusalKind.BUSY: {"retry-after": _RETRY_SECONDS},
    RefusalKind.LOADING: {"retry-after": _RETRY_SECONDS},
    RefusalKind.STOPPED: {"retry-after": _RETRY_SECONDS},
    RefusalKind.UNAUTHORIZED: {"www-authenticate": "Bearer"},
}
_KINDS = {404: RefusalKind.NOT_FOUND, 405: RefusalKind.METHOD}


class Application:
    """Checks, routes and errors of one server.

    dialects: the first one words the errors of paths that are no dialect's. routes: further paths.
    """

    def __init__(
        self,
        served: ServedEngine,
        guard: Guard,
        dialects: Sequence[Dialect],
        routes: Sequence[BaseRoute],
    ) -> None:
        self._served = served
        self._guard = guard
        self._dialects = dialects
        asked = [_reply_route(dialect, served) for dialect in dialects]
        self._router: ASGIApp = Router([*asked, *routes], redirect_slashes=False)
        self._paths = {route.path for route in (*asked, *routes) if isinstance(route, Route)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path: str = scope["path"]
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            refusal = await self._answered(scope, receive, counted)
            if refusal is not None and not status:
                await self._error(path, refusal)(scope, receive, counted)
        except ClientDisconnect:
            pass
        finally:
            if status:
                known = path if path in self._paths else "other"
                self._served.metrics.count_response(known, status)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> RefusedError | None:
        """Answer one request, or return why not."""
        try:
            self._guard.check(scope["path"], headers_of(scope))
            scope["app"] = self  # so that the router raises what it cannot route
            await self._router(scope, receive, send)
        except RefusedError as refusal:
            return refusal
        except HTTPException as error:
            kind = _KINDS.get(error.status_code, RefusalKind.INVALID)
            return RefusedError(kind, self._unrouted(scope, error), headers=error.headers)
        except ClientDisconnect:
            raise
        except asyncio.CancelledError:
            if not self._served.turns.is_closed:
                raise
            return stopped()
        except Exception as error:
            return refusal_of(crash_report(error, self._served.engine.paths))
        return None

    def _unrouted(self, scope: Scope, error: HTTPException) -> str:
        """Why no path answers a request."""
        path: str = scope["path"]
        meant = f"/v1{path}"
        hint = f"; use {meant}" if meant in self._paths else ""
        return f"{scope['method']} {path[:200]}: {error.detail}{hint}"

    def _error(self, path: str, refusal: RefusedError) -> JSONResponse:
        speaks = [dialect for dialect in self._dialects if path.startswith(dialect.path)]
        dialect = (speaks or self._dialects)[0]
        headers = {**_HEADERS.get(refusal.kind, {}), **refusal.headers}
        return JSONResponse(dialect.error(refusal), refusal.kind.status, headers)


def _reply_route(dialect: Dialect, served: ServedEngine) -> Route:
    return Route(dialect.path, ReplyEndpoint(dialect, served), methods=["POST"])
