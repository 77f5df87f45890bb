"""OpenAI's chat completions."""

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.answer import Request
from app.engine.status import Loaded
from app.serve.dialect import (
    AskedReply,
    Begun,
    Ended,
    EndReason,
    Frame,
    Json,
    ReasoningDelta,
    ReplyEvent,
    ReplyWriter,
    TextDelta,
    ToolArguments,
    ToolCallBegun,
)
from app.serve.dialects.openai import (
    CommonFields,
    ResponseFormat,
    asked_grammar,
    error_body,
    logprobs_of,
    timings_of,
    usage_of,
)
from app.serve.refusal import RefusedError, invalid
from app.serve.request_body import Fields, Items, Lenient, read_body, seeds
from app.serve.server_options import MOST_TOP_LOGPROBS
from app.serve.tools.offered_tools import OfferedTools, offered_tools
from app.settings.answering import Answering
from backends.chat.message import Message, Tool, ToolCall


class TextPart(Lenient):
    """A part of a message's content."""

    type: Annotated[str, Field(max_length=64)]
    text: str = ""


class Function(Lenient):
    """The function of a call, and its arguments as JSON text."""

    name: str
    arguments: str = "{}"


class Call(Lenient):
    """A tool call in the history."""

    id: str = ""
    function: Function


Content = str | Items[TextPart]


class ChatMessage(Fields):
    """One message; reasoning of earlier turns is not given to the model again."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    """Only an assistant's message that calls tools may lack it."""
    tool_calls: Items[Call] = Field(default_factory=list[Call])
    tool_call_id: str = ""

    name: object = None
    refusal: object = None
    annotations: object = None
    audio: object = None
    reasoning: object = None
    reasoning_content: object = None
    reasoning_details: object = None
    function_call: object = None
    cache_control: object = None


def conversation_of(messages: Sequence[ChatMessage]) -> Conversation:
    """The conversation of some messages.

    Raises:
        RefusedError: one has no content, or content that is no text.
    """
    turns = (_turn(message, f"messages.{index}") for index, message in enumerate(messages))
    return Conversation.of(turns)


def text_of(content: Content, place: str) -> str:
    """The text of a content.

    Raises:
        RefusedError: a part of it is no text.
    """
    if isinstance(content, str):
        return content
    for index, part in enumerate(content):
        if part.type not in ("text", "input_text", "output_text"):
            where = f"{place}.{index}.type"
            raise invalid(f"{where}: {part.type!r} is not supported; this model reads text", where)
    return "".join(part.text for part in content)


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
    """A function by its name and the schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, object] = Field(default_factory=dict[str, object])


class ChatTool(Fields):
    """A tool that the model may call."""

    type: Literal["function"] = "function"
    function: FunctionTool

    cache_control: object = None


class FunctionName(Fields):
    """The name of a function."""

    name: Annotated[str, Field(max_length=256)]


class NamedTool(Fields):
    """The tool that must be called."""

    type: Literal["function"] = "function"
    function: FunctionName


ToolChoice = Literal["auto", "none", "required"] | NamedTool


def offered_in_chat(
    tools: list[ChatTool], choice: ToolChoice, *, is_parallel: bool
) -> OfferedTools:
    """The tools of a request.

    Raises:
        RefusedError: one is unusable.
    """
    offered = [
        Tool(
            function.name, function.description, json.dumps(function.parameters, ensure_ascii=False)
        )
        for function in (tool.function for tool in tools)
    ]
    kind, name = (choice, "") if isinstance(choice, str) else ("named", choice.function.name)
    return offered_tools(offered, kind, name, is_parallel=is_parallel)


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


_DONE = Frame("[DONE]")

FINISH_REASONS = {
    EndReason.STOP: "stop",
    EndReason.STOP_SEQUENCE: "stop",
    EndReason.LENGTH: "length",
    EndReason.CONTEXT: "length",
    EndReason.TOOL_CALLS: "tool_calls",
}

JsonObject = dict[str, object]


class ChatWriter:
    """Writes the replies to one request; model: the one that is expected to answer.

    choices: of each prompt.
    """

    def __init__(
        self, model: str, *, choices: int, includes_usage: bool, has_logprobs: bool
    ) -> None:
        self._head: JsonObject = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }
        self._choices = choices
        self._includes_usage = includes_usage
        self._has_logprobs = has_logprobs
        self._ended: list[Ended] = []

    def frames(self, choice: int, event: ReplyEvent) -> Iterator[Frame]:
        """One event of a choice as chunks."""
        if isinstance(event, Begun):
            self._head["model"] = event.model
        if isinstance(event, Ended):
            self._ended.append(event)
            yield self._chunk(choice, {}, FINISH_REASONS[event.reason])
        elif isinstance(event, TextDelta) and self._has_logprobs:
            yield self._chunk(choice, {"content": event.text}, logprobs=logprobs_of(event.logprobs))
        else:
            yield self._chunk(choice, _delta(event))

    def end(self) -> Iterator[Frame]:
        """The usage, if it was asked for, and the mark of the end."""
        if self._includes_usage:
            none: list[JsonObject] = []
            yield Frame({**self._of("chat.completion.chunk"), "choices": none, **self._figures()})
        yield _DONE

    def failure(self, refusal: RefusedError) -> Iterable[Frame]:
        """The error as the last chunk."""
        return (Frame(error_body(refusal)), _DONE)

    def heartbeat(self) -> Frame | None:
        """A comment."""
        return None

    def body(self, choices: Sequence[Sequence[ReplyEvent]]) -> Json:
        """All choices as one object."""
        written = [self._choice(index, events) for index, events in enumerate(choices)]
        return {**self._of("chat.completion"), "choices": written, **self._figures()}

    def _figures(self) -> JsonObject:
        return {"usage": usage_of(self._ended, self._choices), "timings": timings_of(self._ended)}

    def _of(self, kind: str) -> JsonObject:
        return {**self._head, "object": kind}

    def _chunk(
        self, choice: int, delta: Json, reason: str | None = None, logprobs: Json | None = None
    ) -> Frame:
        written = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return Frame({**self._of("chat.completion.chunk"), "choices": [written]})

    def _choice(self, index: int, events: Sequence[ReplyEvent]) -> Json:
        text, reasoning, reason = "", "", ""
        calls: dict[int, JsonObject] = {}
        arguments: dict[int, str] = {}
        logprobs = [
            entry for event in events if isinstance(event, TextDelta) for entry in event.logprobs
        ]
        for event in events:
            if isinstance(event, TextDelta):
                text += event.text
            elif isinstance(event, ReasoningDelta):
                reasoning += event.text
            elif isinstance(event, ToolCallBegun):
                calls[event.index] = {"id": event.id, "name": event.name}
            elif isinstance(event, ToolArguments):
                arguments[event.index] = arguments.get(event.index, "") + event.text
            elif isinstance(event, Begun):
                self._head["model"] = event.model
            else:
                self._ended.append(event)
                reason = FINISH_REASONS[event.reason]
        message: JsonObject = {"role": "assistant", "content": text or (None if calls else "")}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = [
                _call(str(call["id"]), str(call["name"]), arguments.get(number, ""))
                for number, call in calls.items()
            ]
        return {
            "index": index,
            "message": message,
            "logprobs": logprobs_of(logprobs) if self._has_logprobs else None,
            "finish_reason": reason,
        }


def _delta(event: ReplyEvent) -> JsonObject:
    if isinstance(event, Begun):
        return {"role": "assistant", "content": ""}
    if isinstance(event, TextDelta):
        return {"content": event.text}
    if isinstance(event, ReasoningDelta):
        return {"reasoning_content": event.text}
    if isinstance(event, ToolCallBegun):
        return {"tool_calls": [{"index": event.index, **_call(event.id, event.name, "")}]}
    if isinstance(event, ToolArguments):
        return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}
    return {}


def _call(name_id: str, name: str, arguments: str) -> JsonObject:
    return {"id": name_id, "type": "function", "function": {"name": name, "arguments": arguments}}


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
