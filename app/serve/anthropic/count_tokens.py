"""Counts the tokens that a message would send to the model."""

import asyncio

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.engine.asking.answer import Answer, Request
from app.serve.answers.reply_reader import refusal_of
from app.serve.anthropic.messages_request import CountRequest
from app.serve.http.incoming import json_body, until_gone
from app.serve.request_body import read_body
from app.serve.served_engine import ServedEngine
from app.settings.answering import Answering
from backends.base import PromptTooLongError, SpecchatError


def count_route(served: ServedEngine, defaults: Answering) -> Route:
    """The path that counts; it takes no turn, and is answered beside a reply."""
    endpoint = CountTokens(served, defaults)
    return Route("/v1/messages/count_tokens", endpoint, methods=["POST"])


class CountTokens:
    """An ASGI application that counts the tokens of a prompt."""

    def __init__(self, served: ServedEngine, defaults: Answering) -> None:
        self._served = served
        self._defaults = defaults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        served = self._served
        with served.counting.take():
            try:
                with served.reading.take():
                    body = await json_body(scope, receive, served.limits)
                _ = served.loaded  # refused until it is
                asked = read_body(CountRequest, body)
                count = await self._count(asked.request(self._defaults), receive)
            except ClientDisconnect:
                return
        await JSONResponse({"input_tokens": count})(scope, receive, send)

    async def _count(self, request: Request, receive: Receive) -> int:
        """The tokens of a prompt, which are no longer counted once the client went away.

        Raises:
            RefusedError: they cannot be counted.
            ClientDisconnect: the client went away.
        """
        counted = asyncio.wrap_future(self._served.engine.prepare(Answer(request)))
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            await asyncio.wait({counted, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not counted.done():
                self._served.metrics.count_gone()
                raise ClientDisconnect
            return counted.result()
        except PromptTooLongError as error:
            return error.prompt_tokens
        except SpecchatError as error:
            raise refusal_of(error) from error
        finally:
            counted.cancel()
            gone.cancel()
            await asyncio.wait({gone})
