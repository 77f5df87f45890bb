"""The server's ASGI application: routes, replies as they come, and errors."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.engine.answer import Answer
from app.engine.status import crash_report
from app.serve.dialect import AskedReply, Dialect, Frame, JsonObject, ReplyWriter
from app.serve.incoming import Guard, checked, json_body, program_of, while_connected
from app.serve.refusal import RefusalKind, RefusedError, refusal_of, stopped
from app.serve.reply_reader import batches, happens
from app.serve.served_engine import CONTENT_TYPE, ServedEngine
from app.serve.served_models import ServedModel
from app.settings.answering import Answering
from app.tools.events import ReplyEvent

_COMMENT = b": the reply is still coming\n\n"
"""What clients skip; it keeps them from giving up in a silence."""

_EVENTS, _LINES = b"text/event-stream; charset=utf-8", b"application/x-ndjson"
_STREAM_HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies pass each piece on at once
]
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
        defaults: Answering,
        guard: Guard,
        dialects: Sequence[Dialect],
        routes: Sequence[Route],
    ) -> None:
        self._served = served
        self._guard = guard
        self._dialects = dialects
        routes = [
            *(
                Route(dialect.path, _Replies(dialect, served, defaults), methods=["POST"])
                for dialect in dialects
            ),
            *_information_routes(served, defaults),
            *routes,
        ]
        self._router: ASGIApp = Router(routes, redirect_slashes=False)
        self._paths = {route.path for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            self._served.metrics.gone.inc()
        finally:
            if status:
                known = path if path in self._paths else "other"  # none that programs make up
                self._served.metrics.responses.labels(known, str(status)).inc()

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> RefusedError | None:
        """Answer one request, or return why not."""
        try:
            self._guard.check(scope["path"], Headers(scope=scope))
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
        speaks = [one for one in self._dialects if path.startswith(one.around or one.path)]
        dialect = (speaks or self._dialects)[0]
        headers = {**_HEADERS.get(refusal.kind, {}), **refusal.headers}
        return JSONResponse(dialect.error(refusal), refusal.kind.status, headers)


class _Replies:
    """Serves one dialect: reads a request, waits for its turn, and writes the reply as it comes."""

    def __init__(self, dialect: Dialect, served: ServedEngine, defaults: Answering) -> None:
        self._dialect = dialect
        self._served = served
        self._defaults = defaults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = self._served
        served.turns.check_open()  # before a body is read that would be refused
        request = Request(scope, receive)
        with served.reading.take():
            body = await json_body(request, served.limits)
        choose = served.models.choose
        asked, writer = await checked(
            body, lambda: self._dialect.read(body, self._defaults, choose)
        )
        program = program_of(request.headers)
        answers = [Answer(replace(one, program=program)) for one in asked.requests]
        reply = asyncio.ensure_future(self._reply(asked, answers, writer, send))
        await while_connected(reply, receive)

    async def _reply(
        self, asked: AskedReply, answers: list[Answer], writer: ReplyWriter, send: Send
    ) -> None:
        with self._served.turns.enter(asked.model) as turn:
            try:
                await self._served.check(asked.model, answers[:: asked.choices])
            except RefusedError as refusal:
                raise _named(refusal, asked) from refusal
            replies = self._events(asked, answers, turn, writer)
            if asked.is_streamed:
                await self._stream(replies, writer, send)
            else:
                await _whole(replies, writer, send)

    async def _events(
        self, asked: AskedReply, answers: list[Answer], turn: asyncio.Event, writer: ReplyWriter
    ) -> AsyncGenerator[tuple[int, list[ReplyEvent]], None]:
        """Yield the number of a choice and its events of one step; none after each silence."""
        served, silence = self._served, self._served.limits.heartbeat_seconds
        while not turn.is_set():
            await happens(turn, silence)
            yield 0, []  # also when it comes: the next silence is counted from here
        with served.models.use(asked.model):
            began_at = time.monotonic()
            loading = asyncio.ensure_future(served.models.engine_of(asked.model))
            try:
                while not (await asyncio.wait({loading}, timeout=silence))[0]:
                    yield 0, []
                engine = loading.result()
                writer.load_seconds = time.monotonic() - began_at
            finally:
                loading.cancel()
            for answer in answers:  # as many as can be are computed together
                engine.begin(answer)
            try:
                for choice, answer in enumerate(answers):
                    new = batches(engine, answer, asked.splitter, silence)
                    async with aclosing(new):
                        async for batch in new:
                            yield choice, batch
            except RefusedError as refusal:
                raise _named(refusal, asked) from refusal
            finally:
                for answer in answers:
                    served.metrics.count_when_done(answer)
                    if not answer.is_done:
                        answer.stop()

    async def _stream(
        self,
        replies: AsyncGenerator[tuple[int, list[ReplyEvent]], None],
        writer: ReplyWriter,
        send: Send,
    ) -> None:
        async def tell(part: bytes, *, is_last: bool = False) -> None:
            await send({"type": "http.response.body", "body": part, "more_body": not is_last})

        kind = _LINES if writer.is_lines else _EVENTS
        headers = [(b"content-type", kind), *_STREAM_HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # Some clients see the headers with the first bytes.
        await tell(_beat(writer) if writer.is_lines else _COMMENT)
        try:
            async for choice, batch in replies:
                frames = [frame for event in batch for frame in writer.frames(choice, event)]
                if frames or not batch:
                    await tell(_encoded(frames, writer) or _beat(writer))
            await tell(_encoded(writer.end(), writer))
        except RefusedError as refusal:
            await tell(_encoded(writer.failure(refusal), writer))
        except asyncio.CancelledError:
            if not self._served.turns.is_closed:
                raise
            await tell(_encoded(writer.failure(stopped()), writer))
        await tell(b"", is_last=True)


async def _whole(
    replies: AsyncGenerator[tuple[int, list[ReplyEvent]], None], writer: ReplyWriter, send: Send
) -> None:
    choices: dict[int, list[ReplyEvent]] = {}
    async with aclosing(replies):
        async for choice, batch in replies:
            choices.setdefault(choice, []).extend(batch)
    body = _json(writer.body(list(choices.values())))
    response = Response(body, media_type="application/json")
    start = {"type": "http.response.start", "status": 200, "headers": response.raw_headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _named(refusal: RefusedError, asked: AskedReply) -> RefusedError:
    """A refusal that names the field, of which the engine knows nothing."""
    fields = {
        RefusalKind.CONTEXT_EXCEEDED: asked.prompt_field,
        RefusalKind.UNUSABLE_FORM: asked.form_field,
    }
    param = refusal.param or fields.get(refusal.kind, "")
    return RefusedError(refusal.kind, refusal.message, param)


def _beat(writer: ReplyWriter) -> bytes:
    frame = writer.heartbeat()
    return _encoded([frame], writer) if frame else _COMMENT


def _encoded(frames: Iterable[Frame], writer: ReplyWriter) -> bytes:
    """Frames as the bytes of a stream: server-sent events, or lines."""
    parts: list[bytes] = []
    for frame in frames:
        if writer.is_lines and not isinstance(frame.data, str):
            parts.append(_json(frame.data) + b"\n")
            continue
        name = f"event: {frame.event}\n" if frame.event else ""
        data = frame.data.encode() if isinstance(frame.data, str) else _json(frame.data)
        parts.append(b"%sdata: %s\n\n" % (name.encode(), data))
    return b"".join(parts)


def _json(value: JsonObject) -> bytes:
    """Compact JSON on one line; an unpaired surrogate, which no text of ours has, is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(errors="backslashreplace")


def _information_routes(served: ServedEngine, defaults: Answering) -> list[Route]:
    """Health, metrics, the model, and what llama-server's clients ask for; none waits."""

    async def health(_: Request) -> Response:
        served.models.first.facts()  # refused until it is loaded
        return JSONResponse({"status": "ok"})

    async def metrics(_: Request) -> Response:
        return Response(served.metrics.text(), media_type=CONTENT_TYPE)

    async def models(_: Request) -> Response:
        listed = [_model(model, served.started_at) for model in served.models.listed()]
        # Codex reports an error without a list of models in its own form; it may be empty.
        return JSONResponse({"object": "list", "data": listed, "models": []})

    async def model(request: Request) -> Response:
        named = served.models.named(request.path_params["name"])
        return JSONResponse(_model(named, served.started_at))

    async def props(_: Request) -> Response:
        return JSONResponse(_props(served, defaults))

    return [
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", model),
        Route("/props", props),
    ]


def _model(model: ServedModel, created: int) -> JsonObject:
    head: JsonObject = {
        "id": model.name,
        "object": "model",
        "created": created,
        "owned_by": "specchat",
        "loaded": model.is_loaded,
    }
    if (loaded := model.last) is None:
        return head
    info = loaded.info
    return {
        **head,
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


def _props(served: ServedEngine, defaults: Answering) -> JsonObject:
    """As llama-server tells them; Zed reads the length of the context there."""
    loaded, sampling = served.models.first.facts(), defaults.sampling
    names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")
    parameters = {name: getattr(sampling, name) for name in names} | {"n_predict": -1}
    return {
        "default_generation_settings": {"n_ctx": loaded.context_size, "params": parameters},
        "total_slots": served.turns.at_once,
        "model_alias": loaded.name,
        "modalities": {"vision": not loaded.info.image_refusal, "audio": False},
    }
