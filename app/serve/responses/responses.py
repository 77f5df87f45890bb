"""OpenAI's responses."""

from dataclasses import dataclass

from app.engine.engine_status import Loaded
from app.serve.dialect import AskedReply, Json, ReplyWriter
from app.serve.openai.openai_error import error_body
from app.serve.refusal import RefusedError
from app.serve.request_body import read_body
from app.serve.responses.response_writer import ResponseWriter
from app.serve.responses.responses_request import ResponsesRequest
from app.settings.answering import Answering


@dataclass(frozen=True, slots=True)
class Responses:
    """The dialect of /v1/responses; defaults: what holds for what is not asked for."""

    defaults: Answering
    path: str = "/v1/responses"

    def read(self, body: bytes, model: Loaded) -> tuple[AskedReply, ReplyWriter]:
        """What a body asks for."""
        asked = read_body(ResponsesRequest, body)
        return asked.asked(self.defaults), ResponseWriter(model.name, asked)

    def error(self, refusal: RefusedError) -> Json:
        """The body of an error."""
        return error_body(refusal)
