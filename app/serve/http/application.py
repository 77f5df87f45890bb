"""The server's ASGI application: checks each request, routes it, and words its errors."""

import asyncio
from collections.abc import Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.engine.crash_report import crash_report
from app.serve.answers.reply_reader import refusal_of
from app.serve.dialect import Dialect
from app.serve.http.guard import Guard
from app.serve.http.incoming import headers_of
from app.serve.http.reply_endpoint import ReplyEndpoint
from app.serve.refusal import RefusalKind, RefusedError, stopped
from app.serve.served_engine import ServedEngine

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
