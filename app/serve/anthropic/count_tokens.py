"""Counts the tokens that a message would send to the model."""

import asyncio

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.engine.asking.answer import Answer
from app.serve.answers.reply_reader import refusal_of
from app.serve.anthropic.messages_request import CountRequest
from app.serve.http.incoming import json_body
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
        try:
            body = await json_body(scope, receive, self._served.limits)
        except ClientDisconnect:
            return
        asked = read_body(CountRequest, body)
        request = asked.request(self._defaults, self._served.loaded)
        try:
            prepared = self._served.engine.prepare(Answer(request))
            count = await asyncio.wrap_future(prepared)
        except PromptTooLongError as error:
            count = error.prompt_tokens
        except SpecchatError as error:
            raise refusal_of(error) from error
        await JSONResponse({"input_tokens": count})(scope, receive, send)
