"""Verifies drafts of other specchats (/v1/verify): they draft, and the model is here.

A client has a context of its own, which it names with each pass. It tells how many of its tokens it
counts on, those that follow, and a draft; it is told how many of that were accepted, and the
model's own token, drawn with the client's numbers. So its answer is the one that it would be if the
model were there, and nothing is decided here.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.engine.session import Session
from app.serve.dialect import JsonObject
from app.serve.incoming import json_body, while_connected
from app.serve.refusal import RefusalKind, RefusedError, invalid, refusal_of
from app.serve.request_body import Fields, read_body
from app.serve.served_engine import ServedEngine
from backends.base import Context, Model, OutOfMemoryError, Rollback, SpecchatError, Warping
from backends.engines.backend_selection import Form, form_of
from backends.files.gguf_header import vocabulary_alone
from decoding.draft import MOST_DRAFTED
from decoding.sampling.distribution import truncated
from decoding.sampling.settings import SamplingSettings
from models.metadata.identity import fingerprint

MOST_CONTEXTS = 4
"""Clients at once; the context that was used least lately is closed for another. A guess."""

_IDLE_SECONDS = 600.0
"""After which a context is closed: its client sends its text again. A guess; not measured."""

_MOST_TOKENS = 8192
"""Of one pass, whatever the model allows."""

_Result = TypeVar("_Result")
_Token = Annotated[int, Field(ge=0)]
_Uniform = Annotated[float, Field(gt=0.0, le=1.0)]


class Sampling(Fields):
    """How the model's own token is drawn; without it, tokens are only read."""

    temperature: Annotated[float, Field(ge=0.0)]
    top_k: Annotated[int, Field(ge=0)]
    top_p: Annotated[float, Field(gt=0.0, le=1.0)]
    min_p: Annotated[float, Field(ge=0.0, le=1.0)]


class Pass(Fields):
    """A pass over tokens and a draft after the first `length` tokens of a context.

    context: "" to open one of n_ctx tokens. model: its identity. uniforms: one more than drafted,
    in (0, 1].
    """

    context: Annotated[str, Field(max_length=64)]
    model: Annotated[str, Field(max_length=64)]
    n_ctx: Annotated[int, Field(ge=1)]
    length: Annotated[int, Field(ge=0)]
    tokens: Annotated[list[_Token], Field(max_length=_MOST_TOKENS)]
    drafted: Annotated[list[_Token], Field(max_length=MOST_DRAFTED)]
    uniforms: Annotated[list[_Uniform], Field(max_length=1 + MOST_DRAFTED)]
    sampling: Sampling | None = None
    likeliest: bool = False


@dataclass(slots=True)
class _Opened:
    """A client's context of a model."""

    model: Model
    context: Context
    used_at: float = field(default_factory=time.monotonic)


class Verifying:
    """The contexts of clients, and what passes over them. For the engine's thread alone."""

    def __init__(self) -> None:
        self._contexts: dict[str, _Opened] = {}
        """By a name that only its client knows; the least lately used first."""

    def run(self, session: Session, asked: Pass, name: str) -> JsonObject:
        """Do a pass. name: of the context that was asked for, or is opened.

        Raises:
            RefusedError: another model is loaded, the context is gone, or the pass cannot be.
            SpecchatError: the engine failed.
        """
        open_still = {key: one for key, one in self._contexts.items() if one.model is session.model}
        self._contexts = open_still  # the others closed with their model
        opened = self._reached(session, asked, name)
        self._contexts[name] = opened
        context = opened.context
        told: JsonObject = {"context": name}
        if not asked.context:
            limits = ("n_ctx", "n_chunk", "max_logits", "max_rollback")
            told |= {limit: getattr(context, limit) for limit in limits}
        context.truncate(asked.length)
        _check(context, asked, session.model.info.n_vocab)
        started = time.perf_counter()
        if asked.sampling is not None:
            told |= _verified(context, asked, asked.sampling)
        elif asked.tokens:
            context.forward(asked.tokens, 0)
        return told | {"seconds": time.perf_counter() - started}

    def close(self, name: str) -> None:
        if (opened := self._contexts.pop(name, None)) is not None:
            opened.context.close()

    def close_idle(self, seconds: float) -> None:
        latest = time.monotonic() - seconds
        for name in [one for one, opened in self._contexts.items() if opened.used_at <= latest]:
            self.close(name)

    def _reached(self, session: Session, asked: Pass, name: str) -> _Opened:
        """The context that a pass asks for, if it can go back so far."""
        if asked.context:
            opened = self._contexts.pop(name, None)
        elif asked.model == _identity(session.model):
            opened = _Opened(session.model, self._open(session, asked.n_ctx))
        else:
            what = f"this server now runs {session.model.info.name}"
            raise RefusedError(RefusalKind.CHANGED, what, "model")
        if opened is None:
            raise RefusedError(RefusalKind.GONE, "there is no such context", "context")
        if opened.context.rollback_to(asked.length) != asked.length:
            opened.context.close()
            raise RefusedError(RefusalKind.GONE, "the context cannot go back there", "length")
        opened.used_at = time.monotonic()
        return opened

    def _open(self, session: Session, n_ctx: int) -> Context:
        most = session.context.facts.n_ctx
        if n_ctx > most:
            raise invalid(f"n_ctx: this server's context has {most:,} tokens", "n_ctx")
        while True:
            try:
                if len(self._contexts) < MOST_CONTEXTS:
                    return session.model.open(n_ctx)
            except OutOfMemoryError:
                if not self._contexts:
                    raise
            self.close(next(iter(self._contexts)))


def _check(context: Context, asked: Pass, n_vocab: int) -> None:
    tokens = [*asked.tokens, *asked.drafted]
    if max(tokens, default=0) >= n_vocab:
        raise invalid(f"tokens: this model has {n_vocab:,}", "tokens")
    if len(tokens) > min(context.n_chunk, context.n_ctx - context.length):
        raise invalid("tokens: they are more than a pass or the context holds", "tokens")
    rows = 1 + len(asked.drafted)
    if asked.sampling is None:
        if asked.drafted:
            raise invalid("drafted: without sampling, nothing is verified", "drafted")
    elif not asked.tokens or rows > min(context.max_logits, 1 + context.max_rollback):
        raise invalid("drafted: it follows no token, or is too long", "drafted")
    elif len(asked.uniforms) != rows:
        raise invalid("uniforms: there is one more than drafted tokens", "uniforms")


def _verified(context: Context, asked: Pass, sampling: Sampling) -> JsonObject:
    """Verify a draft as point masses (decoding.verification.rules.verify), and go back."""
    drafted, likeliest = asked.drafted, list[NDArray[np.int64]]()
    listener = likeliest.append if asked.likeliest else None
    if (device := context.device_sampling) is not None:
        warping, numbers = Warping(**sampling.model_dump()), np.array(asked.uniforms)
        judged = device.verify(asked.tokens, drafted, None, warping, numbers, listener)
    else:
        rows = context.forward([*asked.tokens, *drafted], 1 + len(drafted))
        if listener is not None:
            listener(rows.argmax(axis=1))
        judged = _matched(rows, drafted, sampling, asked.uniforms)
    accepted, token = judged
    context.truncate(asked.length + len(asked.tokens) + accepted)
    told: JsonObject = {"accepted": accepted, "token": token}
    return told | ({"likeliest": likeliest[0].tolist()} if likeliest else {})


def _matched(
    rows: NDArray[np.float32], drafted: Sequence[int], sampling: Sampling, uniforms: Sequence[float]
) -> tuple[int, int]:
    """How many drafted tokens are those that the model draws, and what it draws after them."""
    settings, accepted = SamplingSettings(**sampling.model_dump()), 0
    while True:
        token = truncated(rows[accepted], settings).draw(uniforms[accepted])
        if accepted == len(drafted) or token != drafted[accepted]:
            return accepted, token
        accepted += 1


def _identity(model: Model) -> str:
    """What tells a model from others, whatever they are called."""
    return fingerprint(model.info.path)


def _facts(session: Session) -> JsonObject:
    """What a client has to know before it opens a context."""
    info, path = session.model.info, session.model.info.path
    if form_of(path) is not Form.GGUF:
        raise invalid(f"{info.name} is a folder; only GGUF files are verified with here")
    if info.rollback is Rollback.NONE:
        raise invalid(f"{info.name} {info.rollback_refusal}")
    names = ("name", "architecture", "quantization", "parameters", "weight_bytes", "n_layers",
             "bytes_read_per_token", "n_vocab", "engine", "device", "threads")  # fmt: skip
    facts = {name: getattr(info, name) for name in names}
    return {"model": _identity(session.model), "n_ctx": session.context.facts.n_ctx, **facts}


async def _result(work: Future[_Result]) -> _Result:
    """What some work of the engine's thread returns; its errors as refusals."""
    try:
        return await asyncio.wrap_future(work)
    except SpecchatError as error:
        raise refusal_of(error) from error


class _Paths:
    """What is asked over HTTP; nothing takes a turn, and passes go between those of answers."""

    def __init__(self, served: ServedEngine) -> None:
        self._served = served
        self._first = served.models.first
        self._verifying = Verifying()
        self._closing_idle: asyncio.Future[None] | None = None

    async def facts(self, _: Request) -> Response:
        with self._served.models.use(self._first):
            engine = await self._served.models.engine_of(self._first)
            facts = await _result(engine.between(_facts))
            return JSONResponse({**facts, "name": self._first.name})

    async def vocabulary(self, _: Request) -> Response:
        path = self._first.facts().info.path
        try:
            data = await asyncio.to_thread(vocabulary_alone, path)
        except (SpecchatError, OSError) as error:
            raise refusal_of(error) from error
        return Response(data, media_type="application/octet-stream")

    async def verify(self, request: Request) -> Response:
        served, verifying = self._served, self._verifying
        with served.counting.take(), served.models.use(self._first):
            asked = read_body(Pass, await json_body(request, served.limits))
            name = asked.context or secrets.token_urlsafe(16)
            engine = await served.models.engine_of(self._first)
            self._closing_idle = self._closing_idle or asyncio.ensure_future(self._close_idle())
            work = engine.between(lambda session: verifying.run(session, asked, name))
            try:
                told = await while_connected(asyncio.ensure_future(_result(work)), request.receive)
            except ClientDisconnect:
                engine.between(lambda _: verifying.close(name))
                raise
        return JSONResponse(told)

    async def _close_idle(self) -> None:
        """Close what was idle for long, until the server ends."""
        while True:
            await asyncio.sleep(_IDLE_SECONDS / 10)
            with suppress(RefusedError):  # no model is loaded, and so no context open
                await self._close(lambda: self._verifying.close_idle(_IDLE_SECONDS))

    async def _close(self, closing: Callable[[], None]) -> None:
        if (engine := self._first.engine) is not None:
            await _result(engine.between(lambda _: closing()))

    async def close(self, request: Request) -> Response:
        await self._close(lambda: self._verifying.close(request.path_params["name"]))
        return Response(status_code=204)


def verifying_routes(served: ServedEngine) -> list[Route]:
    paths = _Paths(served)
    return [
        Route("/v1/verify", paths.facts, methods=["GET"]),
        Route("/v1/verify", paths.verify, methods=["POST"]),
        Route("/v1/verify/vocabulary", paths.vocabulary, methods=["GET"]),
        Route("/v1/verify/{name}", paths.close, methods=["DELETE"]),
    ]
