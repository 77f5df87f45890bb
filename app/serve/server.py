"""The HTTP server on a thread of its own, and its connections."""

import asyncio
import contextlib
import logging
import socket
import sys
from functools import partial
from threading import Event, Thread
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.engine.engine import Engine
from app.serve.application import Application
from app.serve.clients import address_of
from app.serve.dialects.anthropic import MESSAGES, count_route
from app.serve.dialects.chat import CHAT
from app.serve.dialects.completions import COMPLETIONS
from app.serve.dialects.ollama import OLLAMA, ollama_routes
from app.serve.dialects.responses import RESPONSES
from app.serve.embeddings import embeddings_route
from app.serve.incoming import Guard
from app.serve.reply_reader import happens
from app.serve.served_engine import ServedEngine
from app.serve.server_options import Limits, ServerOptions
from app.serve.verifying import verifying_routes
from app.settings.answering import Answering
from backends.base import UsageError

_STALL_SECONDS = 60.0
"""How long a client may take nothing of what it is sent. A guess; not measured."""


_START_SECONDS = 10.0
_BACKLOG = 128
_REFUSE_SECONDS = 0.5
"""How long the end waits until all requests are refused. A guess; not measured."""


class BoundedProtocol(H11Protocol):
    """A connection that ends if headers do not come in time, or what is sent is not taken.

    Requests that are sent before the reply to the one before is complete are not read, and the
    connection ends after that reply: so the end of the client is always noticed.
    """

    def __init__(self, bounds: Limits, **options: Any) -> None:
        super().__init__(**options)
        self._bounds = bounds
        self._headers_due: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._bounds.connections:
            transport.close()
            return
        self._follow_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._headers_due, self._stalled):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_replying:
            self.cycle.keep_alive = False
            return
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self._is_replying and self.conn.trailing_data[0]:
            self.cycle.keep_alive = False
            self.flow.resume_reading()
        self._follow_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(_STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    @property
    def _is_replying(self) -> bool:
        """Whether a whole request came, and its response is not complete."""
        cycle = self.cycle
        return bool(cycle) and not cycle.more_body and not cycle.response_complete

    def _follow_request(self) -> None:
        """Limit the time without a request; the time for a body is limited where it is read."""
        is_waiting = not self.cycle or self.cycle.response_complete  # none before the first
        if not is_waiting and self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None
        elif is_waiting and self._headers_due is None:
            seconds = self._bounds.header_seconds
            self._headers_due = self.loop.call_later(seconds, self.transport.abort)


def application_of(served: ServedEngine, defaults: Answering, guard: Guard) -> Application:
    """All that is served, in all dialects."""
    dialects = (CHAT, COMPLETIONS, RESPONSES, MESSAGES, *OLLAMA)
    own = [count_route(served, defaults), embeddings_route(served)]
    routes = [*own, *ollama_routes(served), *verifying_routes(served)]
    return Application(served, defaults, guard, dialects, routes)


class Server:
    """A server that listens from when it is made, and answers from `start` to `close`.

    Raises:
        UsageError: it cannot listen there.
    """

    def __init__(self, engine: Engine, options: ServerOptions, defaults: Answering) -> None:
        self.served = ServedEngine(engine, options.limits, options.models, options.unload_after)
        self._socket = _listening(options.host, options.port)
        self.host: str = options.host
        self.port: int = self._socket.getsockname()[1]
        guard = Guard(options.host, options.key, options.names)
        application = application_of(self.served, defaults, guard)
        self._uvicorn = _Quiet(_config(application, options.limits), self.served)
        self._thread = Thread(target=self._run, name="server", daemon=True)

    @property
    def address(self) -> str:
        """Where clients on this machine reach it, without the path of a dialect."""
        return address_of(self.host, self.port)

    def start(self) -> None:
        self._thread.start()
        self._uvicorn.has_started.wait(_START_SECONDS)

    def close(self, seconds: float = 2.0) -> None:
        """Stop all answers, and end the thread."""
        self._uvicorn.should_exit = True
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it has just ended
                self._uvicorn.wake()
            self._thread.join(seconds)
        self.served.models.close(seconds)
        self._socket.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            # What goes wrong on a connection concerns nobody else.
            runner.get_loop().set_exception_handler(lambda _loop, _context: None)
            with contextlib.suppress(asyncio.CancelledError):
                runner.run(self._uvicorn.serve([self._socket]))


class _Quiet(uvicorn.Server):
    """Uvicorn's server, which tells when it has started, and refuses requests before it ends."""

    def __init__(self, config: uvicorn.Config, served: ServedEngine) -> None:
        super().__init__(config)
        self.has_started = Event()
        self._served = served
        self.wake = partial[Any](int)

    async def main_loop(self) -> None:
        """As Uvicorn's, which wakes ten times as often, even while the model decodes."""
        ending = asyncio.Event()
        self.wake = partial(asyncio.get_running_loop().call_soon_threadsafe, ending.set)
        while not await self.on_tick(0):
            await happens(ending, 1.0)  # answers tell the date to the second

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._served.models.rest(self._served.models.first)
        self.has_started.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Uvicorn itself would answer what it cancels with a text of its own, and not wait for it.
        self._served.turns.close()
        requests = list(self.server_state.tasks)
        for request in requests:
            request.cancel()
        if requests:
            await asyncio.wait(requests, timeout=_REFUSE_SECONDS)
        await super().shutdown(sockets)


def _config(application: ASGIApp, limits: Limits) -> uvicorn.Config:
    logging.getLogger("uvicorn").propagate = False  # standard error is for what users should read
    return uvicorn.Config(
        application,
        loop="asyncio",
        http=cast("type[asyncio.Protocol]", partial(BoundedProtocol, limits)),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=0,
        h11_max_incomplete_event_size=limits.headers,
    )


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            if sys.platform == "win32":  # where another process could take the port over
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            else:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        what = f"cannot listen on {host}, port {port}"
        why = str(error.strerror or error) if isinstance(error, OSError) else str(error)
        raise UsageError(what, why, "Choose another with --port or --host.") from error
    listening.setblocking(False)
    return listening
