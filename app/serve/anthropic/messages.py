"""Anthropic's messages."""

from dataclasses import dataclass

from app.engine.engine_status import Loaded
from app.serve.anthropic.anthropic_error import error_body
from app.serve.anthropic.message_writer import MessageWriter
from app.serve.anthropic.messages_request import MessagesRequest
from app.serve.dialect import AskedReply, Json, ReplyWriter
from app.serve.refusal import RefusedError
from app.serve.request_body import read_body
from app.settings.answering import Answering


@dataclass(frozen=True, slots=True)
class Messages:
    """The dialect of /v1/messages; defaults: what holds for what is not asked for."""

    defaults: Answering
    path: str = "/v1/messages"

    def read(self, body: bytes, model: Loaded) -> tuple[AskedReply, ReplyWriter]:
        """What a body asks for."""
        asked = read_body(MessagesRequest, body).asked(self.defaults)
        return asked, MessageWriter(model.name)

    def error(self, refusal: RefusedError) -> Json:
        """The body of an error."""
        return error_body(refusal)
