"""What OpenAI's chat asks for."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from app.chat.reply_options import ReplyOptions
from app.engine.asking.answer import Request
from app.engine.engine_status import Loaded
from app.serve.asked_sampling import seeds
from app.serve.limits import MOST_TOP_LOGPROBS
from app.serve.openai.chat_tools import ChatTool, ToolChoice, offered_in_chat
from app.serve.openai.common_fields import CommonFields
from app.serve.openai.messages import ChatMessage, Content, conversation_of, text_of
from app.serve.openai.response_format import ResponseFormat, asked_grammar
from app.serve.refusal import invalid
from app.serve.request_body import Fields, Items
from app.serve.tools.offered_tools import OfferedTools
from app.settings.answering import Answering

_Count = Annotated[int, Field(ge=1, le=1 << 31)]


class Prediction(Fields):
    """Text that the reply will repeat in large parts."""

    type: Literal["content"] = "content"
    content: Content = ""


class ChatRequest(CommonFields):
    """The body of a request to /v1/chat/completions."""

    messages: Annotated[Items[ChatMessage], Field(min_length=1)]
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    prediction: Prediction | None = None
    modalities: Items[Literal["text"]] = Field(default_factory=list[Literal["text"]])
    tools: Items[ChatTool] = Field(default_factory=list[ChatTool])
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True

    reasoning_effort: object = None
    verbosity: object = None

    @property
    def offered(self) -> OfferedTools:
        """The tools of this request.

        Raises:
            RefusedError: one is unusable.
        """
        return offered_in_chat(self.tools, self.tool_choice, is_parallel=self.parallel_tool_calls)

    def requests(self, defaults: Answering, loaded: Loaded) -> tuple[Request, ...]:
        """A request for each choice.

        Raises:
            RefusedError: values are out of range, or contradict each other.
        """
        sampling = self.sampling(defaults, loaded.info.n_vocab)
        first = Request(
            conversation_of(self.messages),
            sampling,
            self._longest,
            options=self._options(),
            tools=self.offered.tools,
            may_drop=False,
        )
        return tuple(
            replace(first, settings=replace(sampling, seed=seed))
            for seed in seeds(sampling.seed, self.n)
        )

    @property
    def _longest(self) -> int:
        return self.max_completion_tokens or self.max_tokens or 1 << 31

    def _options(self) -> ReplyOptions:
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs needs logprobs to be true", "top_logprobs")
        prediction = self.prediction
        options = ReplyOptions(
            stops=self.stops,
            grammar=asked_grammar(self.response_format, self.grammar),
            prediction="" if prediction is None else text_of(prediction.content, "prediction"),
            top_logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )
        return self.offered.options(options)
