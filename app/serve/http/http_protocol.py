"""HTTP connections of the server: uvicorn's, with bounds that it does not have."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.serve.limits import Limits

_MALFORMED = (
    b'{"error":{"message":"this is not a valid HTTP request",'
    b'"type":"invalid_request_error","param":null,"code":null}}'
)
_STALL_SECONDS = 60.0
"""How long a client may take nothing of what it is sent. A guess; not measured."""


def protocol_of(limits: Limits) -> type[asyncio.Protocol]:
    """The class of the connections of a server with these bounds."""

    class Bounded(BoundedProtocol):
        bounds = limits

    return Bounded


class BoundedProtocol(H11Protocol):
    """A connection that ends if headers do not come in time, or what is sent is not taken.

    Requests that are sent before the reply to the one before is complete are not read, and the
    connection ends after that reply: so the end of the client is always noticed.
    """

    bounds = Limits()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._headers_due: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections:
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

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, unless a response has begun."""
        del msg
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
            response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in (response, h11.Data(data=_MALFORMED), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

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
            seconds = self.bounds.header_seconds
            self._headers_due = self.loop.call_later(seconds, self.transport.abort)
