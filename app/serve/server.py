"""The HTTP server on a thread of its own."""

import asyncio
import contextlib
import logging
import socket
import sys
from threading import Event, Thread

import uvicorn
from starlette.types import ASGIApp

from app.engine.engine import Engine
from app.serve.answers.turns import Turns
from app.serve.anthropic.count_tokens import count_route
from app.serve.anthropic.messages import Messages
from app.serve.clients.endpoint import address_of
from app.serve.http.application import Application
from app.serve.http.guard import Guard
from app.serve.http.http_protocol import protocol_of
from app.serve.http.information import information_routes
from app.serve.limits import Limits
from app.serve.openai.chat import Chat
from app.serve.openai.completions import Completions
from app.serve.responses.responses import Responses
from app.serve.served_engine import ServedEngine
from app.serve.server_options import ServerOptions
from app.settings.answering import Answering
from backends.base import UsageError

_START_SECONDS = 10.0
_BACKLOG = 128
_REFUSE_SECONDS = 0.5
"""How long the end waits until all requests are refused. A guess; not measured."""


class Server:
    """A server that listens from when it is made, and answers from `start` to `close`.

    Raises:
        UsageError: it cannot listen there.
    """

    def __init__(self, engine: Engine, options: ServerOptions, defaults: Answering) -> None:
        self.served = ServedEngine.of(engine, options.limits)
        self._socket = _listening(options.host, options.port)
        self.host: str = options.host
        self.port: int = self._socket.getsockname()[1]
        guard = Guard(options.host, options.key, options.names)
        dialects = (
            Chat(defaults), Completions(defaults), Responses(defaults), Messages(defaults)
        )  # fmt: skip
        routes = [*information_routes(self.served, defaults), count_route(self.served, defaults)]
        application = Application(self.served, guard, dialects, routes)
        self._uvicorn = _Quiet(_config(application, options.limits), self.served.turns)
        self._thread = Thread(target=self._run, name="server", daemon=True)

    @property
    def address(self) -> str:
        """Where clients on this machine reach it, without the path of a dialect."""
        return address_of(self.host, self.port)

    def start(self) -> None:
        """Answer requests on a thread."""
        self._thread.start()
        self._uvicorn.has_started.wait(_START_SECONDS)

    def close(self, seconds: float = 2.0) -> None:
        """Stop all answers, and end the thread."""
        self._uvicorn.should_exit = True
        if self._thread.is_alive():
            self._thread.join(seconds)
        self._socket.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.get_loop().set_exception_handler(_ignore)
            with contextlib.suppress(asyncio.CancelledError):
                runner.run(self._uvicorn.serve([self._socket]))


class _Quiet(uvicorn.Server):
    """Uvicorn's server, which tells when it has started, and refuses requests before it ends."""

    def __init__(self, config: uvicorn.Config, turns: Turns) -> None:
        super().__init__(config)
        self.has_started = Event()
        self._turns = turns

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.has_started.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Uvicorn itself would answer what it cancels with a text of its own, and not wait for it.
        self._turns.close()
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
        http=protocol_of(limits),
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
    """A socket that listens.

    Raises:
        UsageError: the port is in use, or the address is none of this machine's.
    """
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


def _ignore(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """What goes wrong on a connection concerns nobody else."""
    del loop, context
