"""OpenAI's text completions, also into a gap."""

from dataclasses import dataclass

from app.engine.engine_status import Loaded
from app.serve.dialect import AskedReply, Json, ReplyWriter
from app.serve.openai.completions_request import CompletionsRequest
from app.serve.openai.completions_writer import CompletionsWriter
from app.serve.openai.openai_error import error_body
from app.serve.refusal import RefusedError
from app.serve.request_body import read_body
from app.settings.answering import Answering


@dataclass(frozen=True, slots=True)
class Completions:
    """The dialect of /v1/completions; defaults: what holds for what is not asked for."""

    defaults: Answering
    path: str = "/v1/completions"

    def read(self, body: bytes, model: Loaded) -> tuple[AskedReply, ReplyWriter]:
        """What a body asks for."""
        asked = read_body(CompletionsRequest, body)
        writer = CompletionsWriter(
            model.name,
            choices=asked.n,
            includes_usage=asked.stream_options.include_usage,
            has_logprobs=asked.logprobs is not None,
        )
        reply = AskedReply(
            asked.requests(self.defaults, model),
            asked.stream,
            asked.n,
            prompt_field="prompt",
            form_field=asked.form_field,
        )
        return reply, writer

    def error(self, refusal: RefusedError) -> Json:
        """The body of an error."""
        return error_body(refusal)
