"""OpenAI's chat completions."""

from dataclasses import dataclass

from app.engine.engine_status import Loaded
from app.serve.dialect import AskedReply, Json, ReplyWriter
from app.serve.openai.chat_request import ChatRequest
from app.serve.openai.chat_writer import ChatWriter
from app.serve.openai.openai_error import error_body
from app.serve.refusal import RefusedError
from app.serve.request_body import read_body
from app.settings.answering import Answering


@dataclass(frozen=True, slots=True)
class Chat:
    """The dialect of /v1/chat/completions; defaults: what holds for what is not asked for."""

    defaults: Answering
    path: str = "/v1/chat/completions"

    def read(self, body: bytes, model: Loaded) -> tuple[AskedReply, ReplyWriter]:
        """What a body asks for."""
        asked = read_body(ChatRequest, body)
        writer = ChatWriter(
            model.name,
            choices=asked.n,
            includes_usage=asked.stream_options.include_usage,
            has_logprobs=asked.logprobs,
        )
        requests = asked.requests(self.defaults, model)
        reply = AskedReply(
            requests,
            asked.stream,
            asked.n,
            asked.offered.splitter,
            form_field="tools" if asked.offered.is_required else asked.form_field,
        )
        return reply, writer

    def error(self, refusal: RefusedError) -> Json:
        """The body of an error."""
        return error_body(refusal)
