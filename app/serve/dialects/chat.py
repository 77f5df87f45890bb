"""OpenAI's chat completions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.reply import Request
from app.serve.dialect import AskedReply, Choose, Dialect, JsonObject
from app.serve.dialects import openai
from app.serve.offered_tools import OfferedTools, offered_tools
from app.serve.refusal import invalid
from app.serve.request_body import (
    Content,
    Effort,
    Fields,
    Items,
    Lenient,
    as_tool,
    read_body,
    seeds,
    text_of,
    thinking,
)
from app.serve.served_models import ServedModel
from app.serve.server_options import MOST_TOP_LOGPROBS
from app.settings.answering import Answering
from app.tools import events
from backends.chat.message import Message, ToolCall


class Function(Lenient):
    name: str
    arguments: str = "{}"


class Call(Lenient):
    id: str = ""
    function: Function


class ChatMessage(Fields):
    """One message; reasoning of earlier turns is not given to the model again."""

    ignored = frozenset((
        "name", "refusal", "annotations", "audio", "reasoning", "reasoning_content",
        "reasoning_details", "cache_control",
    ))  # fmt: skip

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    """Only an assistant's message that calls tools may lack it."""
    tool_calls: Items[Call] = Field(default_factory=list[Call])
    tool_call_id: str = ""

    function_call: object = None


def conversation_of(messages: Sequence[ChatMessage]) -> Conversation:
    turns = (_turn(message, f"messages.{index}") for index, message in enumerate(messages))
    return Conversation.of(turns)


def _turn(message: ChatMessage, place: str) -> Message:
    role = "system" if message.role == "developer" else message.role
    calls = tuple(
        ToolCall(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls
    )
    if message.function_call is not None:
        raise invalid(f"{place}.function_call is not supported; use tool_calls", place)
    if message.content is None and not (calls and role == "assistant"):
        raise invalid(f"{place}.content is missing", f"{place}.content")
    text = text_of(message.content or "", f"{place}.content")
    # A result without an id is still a result, which templates without tools show as a user's turn.
    answers = message.tool_call_id or ("unnamed" if role == "tool" else "")
    return Message(role, text, calls, answers)


class FunctionTool(Lenient):
    name: str
    description: str = ""
    parameters: dict[str, object] = Field(default_factory=dict[str, object])


class ChatTool(Fields):
    ignored = frozenset({"cache_control"})

    type: Literal["function"] = "function"
    function: FunctionTool


class FunctionName(Fields):
    name: Annotated[str, Field(max_length=256)]


class NamedTool(Fields):
    type: Literal["function"] = "function"
    function: FunctionName


class Prediction(Fields):
    """Text that the reply will repeat in large parts."""

    type: Literal["content"] = "content"
    content: Content = ""


class ChatRequest(openai.CommonFields):
    ignored = openai.CommonFields.ignored | {"verbosity"}

    messages: Annotated[Items[ChatMessage], Field(min_length=1)]
    max_tokens: openai.Count | None = None
    max_completion_tokens: openai.Count | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    prediction: Prediction | None = None
    modalities: Items[Literal["text"]] = Field(default_factory=list[Literal["text"]])
    tools: Items[ChatTool] = Field(default_factory=list[ChatTool])
    tool_choice: Literal["auto", "none", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    reasoning_effort: Effort | None = None
    continue_final_message: bool = False
    """Whether the reply goes on with a last message of the assistant, as vLLM takes it."""

    @property
    def offered(self) -> OfferedTools:
        choice = self.tool_choice
        kind, name = (choice, "") if isinstance(choice, str) else ("named", choice.function.name)
        functions = (tool.function for tool in self.tools)
        tools = [as_tool(each.name, each.description, each.parameters) for each in functions]
        return offered_tools(tools, kind, name, is_parallel=self.parallel_tool_calls)


class ChatWriter(openai.OpenAIWriter):
    def __init__(self, model: str, asked: ChatRequest) -> None:
        super().__init__(model, asked, "chatcmpl", "chat.completion", "chat.completion.chunk")
        self._has_logprobs = asked.logprobs

    def choices(self, choice: int, event: events.ReplyEvent) -> Iterator[JsonObject]:
        reason = openai.FINISH_REASONS[event.reason] if isinstance(event, events.Ended) else None
        tokens = event.logprobs if isinstance(event, events.TextDelta) else None
        yield {
            "index": choice,
            "delta": _delta(event),
            "logprobs": self._logprobs(tokens),
            "finish_reason": reason,
        }

    def whole(self, choice: int, reply: openai.WholeReply) -> JsonObject:
        content = reply.text or (None if reply.calls else "")
        message: JsonObject = {"role": "assistant", "content": content}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [
                _call(call.id, call.name, call.arguments) for call in reply.calls
            ]
        return {
            "index": choice,
            "message": message,
            "logprobs": self._logprobs(reply.logprobs),
            "finish_reason": reply.reason,
        }

    def _logprobs(self, tokens: Iterable[events.TokenLogprob] | None) -> JsonObject | None:
        if tokens is None or not self._has_logprobs:
            return None
        return {"content": [_entry(token) for token in tokens], "refusal": None}


def _delta(event: events.ReplyEvent) -> JsonObject:
    if isinstance(event, events.Begun):
        return {"role": "assistant", "content": ""}
    if isinstance(event, events.TextDelta):
        return {"content": event.text}
    if isinstance(event, events.ReasoningDelta):
        return {"reasoning_content": event.text}
    if isinstance(event, events.ToolCallBegun):
        return {"tool_calls": [{"index": event.index, **_call(event.id, event.name, "")}]}
    if isinstance(event, events.ToolArguments):
        return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}
    return {}


def _call(name_id: str, name: str, arguments: str) -> JsonObject:
    return {"id": name_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _entry(token: events.TokenLogprob) -> JsonObject:
    top = [_figures(other.data, other.logprob) for other in token.top]
    return {**_figures(token.data, token.logprob), "top_logprobs": top}


def _figures(data: bytes, logprob: float) -> JsonObject:
    return {"token": openai.token_text(data), "logprob": logprob, "bytes": list(data)}


def _read(body: bytes, defaults: Answering, choose: Choose) -> tuple[AskedReply, ChatWriter]:
    asked = read_body(ChatRequest, body)
    model = choose(asked.model)
    return asked_reply(asked, defaults, model), ChatWriter(model.name, asked)


def asked_reply(asked: ChatRequest, defaults: Answering, model: ServedModel) -> AskedReply:
    sampling = asked.sampling(defaults, model.n_vocab)
    offered = asked.offered
    conversation = conversation_of(asked.messages)
    begun = _begun(conversation) if asked.continue_final_message else ""
    budget = thinking(conversation, defaults, asked.reasoning_effort)
    first = Request(
        conversation,
        sampling,
        asked.max_completion_tokens or asked.max_tokens or 1 << 31,
        partial=begun,
        options=replace(offered.options(_options(asked)), think_budget=budget),
        tools=offered.tools,
        may_drop=False,
    )
    return AskedReply(
        model,
        tuple(
            replace(first, settings=replace(sampling, seed=seed))
            for seed in seeds(sampling.seed, asked.n)
        ),
        asked.stream,
        asked.n,
        partial(offered.splitter, is_begun=bool(begun)),
        form_field="tools" if offered.is_required else asked.form_field,
    )


def _begun(conversation: Conversation) -> str:
    """Take the beginning of the reply from the end of a conversation."""
    last = conversation.turns[-1] if conversation.turns else None
    if last is None or last.role != "assistant" or last.calls:
        field = "continue_final_message"
        raise invalid(f"{field} needs a last message of the assistant, without calls", field)
    return conversation.turns.pop().content


def _options(asked: ChatRequest) -> ReplyOptions:
    if asked.top_logprobs is not None and not asked.logprobs:
        raise invalid("top_logprobs needs logprobs to be true", "top_logprobs")
    prediction = asked.prediction
    return ReplyOptions(
        stops=asked.stops,
        grammar=asked.form,
        prediction="" if prediction is None else text_of(prediction.content, "prediction"),
        top_logprobs=(asked.top_logprobs or 0) if asked.logprobs else None,
    )


CHAT = Dialect("/v1/chat/completions", _read, openai.error_body)
