"""Verifies drafts of other specchats (/v1/verify): they draft, and the model is here.

A client has a context of its own, which it names with each pass. It tells how many of its tokens it
counts on, those that follow, and a draft; it is told how many of that were accepted, and the
model's own token, drawn with the client's numbers. So its answer is the one that it would be if the
model were there, and nothing is decided here.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import Future
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
from backends.files.gguf_vocabulary import vocabulary_alone
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
        self._forget_closed(session.model)
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

    def close(self, name: str, idle_seconds: float = 0.0) -> bool:
        """Close a context unless it was used since; returns whether it is still open."""
        opened = self._contexts.get(name)
        if opened is not None and time.monotonic() - opened.used_at >= idle_seconds:
            del self._contexts[name]
            opened.context.close()
        return name in self._contexts

    def _forget_closed(self, model: Model) -> None:
        """Forget contexts that closed with their model."""
        self._contexts = {
            name: opened for name, opened in self._contexts.items() if opened.model is model
        }

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
        while len(self._contexts) >= MOST_CONTEXTS:
            self.close(next(iter(self._contexts)))
        while True:
            try:
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
    warping = Warping(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    likeliest = list[NDArray[np.int64]]()
    listener = likeliest.append if asked.likeliest else None
    uniforms = np.array(asked.uniforms)
    if (device := context.device_sampling) is not None:
        accepted, token = device.verify(
            asked.tokens, asked.drafted, None, warping, uniforms, listener
        )
    else:
        rows = context.forward([*asked.tokens, *asked.drafted], 1 + len(asked.drafted))
        if listener is not None:
            listener(rows.argmax(axis=1))
        accepted, token = _matched(rows, asked.drafted, warping, asked.uniforms)
    context.truncate(asked.length + len(asked.tokens) + accepted)
    told: JsonObject = {"accepted": accepted, "token": token}
    return told | ({"likeliest": likeliest[0].tolist()} if likeliest else {})


def _matched(
    rows: NDArray[np.float32], drafted: Sequence[int], warping: Warping, uniforms: Sequence[float]
) -> tuple[int, int]:
    """How many drafted tokens are those that the model draws, and what it draws after them."""
    settings = SamplingSettings(
        temperature=warping.temperature,
        top_k=warping.top_k,
        top_p=warping.top_p,
        min_p=warping.min_p,
    )
    for accepted, token in enumerate(drafted):
        drawn = truncated(rows[accepted], settings).draw(uniforms[accepted])
        if drawn != token:
            return accepted, drawn
    return len(drafted), truncated(rows[-1], settings).draw(uniforms[-1])


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
        self._watching = set[asyncio.Future[None]]()

    async def facts(self, _: Request) -> Response:
        with self._served.models.use(self._first):
            engine = await self._served.models.engine_of(self._first)
            return JSONResponse(await _result(engine.between(_facts)))

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
            if not asked.context:
                self._watch(name)
            work = engine.between(lambda session: verifying.run(session, asked, name))
            try:
                told = await while_connected(asyncio.ensure_future(_result(work)), request.receive)
            except ClientDisconnect:
                engine.between(lambda _: verifying.close(name))
                raise
        return JSONResponse(told)

    def _watch(self, name: str) -> None:
        """Close a context once it was idle for long."""

        async def watch() -> None:
            while self._first.engine is not None:
                await asyncio.sleep(_IDLE_SECONDS)
                if not await self._closed(name, _IDLE_SECONDS):
                    return

        task = asyncio.ensure_future(watch())
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _closed(self, name: str, idle_seconds: float = 0.0) -> bool:
        """Close a context if it was idle so long; whether it is still open."""
        engine = self._first.engine
        return engine is not None and await _result(
            engine.between(lambda _: self._verifying.close(name, idle_seconds))
        )

    async def close(self, request: Request) -> Response:
        await self._closed(request.path_params["name"])
        return Response(status_code=204)


def verifying_routes(served: ServedEngine) -> list[Route]:
    """The paths of drafts from elsewhere."""
    paths = _Paths(served)
    return [
        Route("/v1/verify", paths.facts, methods=["GET"]),
        Route("/v1/verify", paths.verify, methods=["POST"]),
        Route("/v1/verify/vocabulary", paths.vocabulary, methods=["GET"]),
        Route("/v1/verify/{name}", paths.close, methods=["DELETE"]),
    ]
