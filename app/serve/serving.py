"""Serves an engine beside what else uses it; loads HTTP only then."""

from collections.abc import Generator
from contextlib import contextmanager

from app.engine.engine import Companion, Engine
from app.serve.server_options import ServerOptions, is_wildcard
from app.settings.answering import Answering
from app.settings.in_effect import ServedAt


def serving(options: ServerOptions, defaults: Answering) -> Companion:
    """What serves an engine as long as its `with` lasts.

    defaults: what holds for what a request does not ask for.
    """

    @contextmanager
    def serve(engine: Engine) -> Generator[ServedAt, None, None]:
        from app.serve.server import Server

        server = Server(engine, options, defaults)
        try:
            server.start()
            yield ServedAt(server.address, is_wildcard(options.host))
        finally:
            server.close()

    return serve
