"""Anthropic's messages, and the count of their tokens."""

import asyncio
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal, cast

from pydantic import Field
from pydantic_core import from_json
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.answer import Answer
from app.engine.reply import Request
from app.serve.dialect import AskedReply, Choose, Dialect, Frame, JsonObject, ReplyWriter
from app.serve.incoming import checked, json_body, while_connected
from app.serve.offered_tools import OfferedTools, offered_tools
from app.serve.refusal import RefusalKind, RefusedError, invalid
from app.serve.request_body import (
    Content,
    Effort,
    Fields,
    Items,
    Lenient,
    TextPart,
    as_tool,
    asked_sampling,
    part_text,
    read_body,
    text_of,
    thinking,
)
from app.serve.served_engine import ServedEngine
from app.serve.server_options import MOST_STOP_CHARACTERS, MOST_STOPS
from app.settings.answering import Answering
from app.tools import events
from app.tools.open_calls import finite, loads_finite
from backends.chat.message import Message, ToolCall
from backends.chat.reply_form import THINK_ON
from decoding.constraint.grammar import Grammar, GrammarKind

_TYPES: Mapping[RefusalKind, str] = {
    RefusalKind.UNAUTHORIZED: "authentication_error",
    RefusalKind.FORBIDDEN: "permission_error",
    RefusalKind.NOT_FOUND: "not_found_error",
    RefusalKind.NO_MODEL: "not_found_error",
    RefusalKind.TOO_LARGE: "request_too_large",
    RefusalKind.FAILED: "api_error",
    RefusalKind.BUSY: "overloaded_error",
    RefusalKind.LOADING: "overloaded_error",
    RefusalKind.STOPPED: "overloaded_error",
}


def error_body(refusal: RefusedError) -> JsonObject:
    message = refusal.message
    if refusal.kind is RefusalKind.CONTEXT_EXCEEDED:
        # Claude Code shortens its conversation when an error says this.
        message = f"prompt is too long: {message} (context_length_exceeded)"
    kind = _TYPES.get(refusal.kind, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


_CHANGING_HEADER = "x-anthropic-billing-header"
"""Begins a block that Claude Code changes with each request, which would end every cache there."""

_IGNORED = ("thinking", "redacted_thinking")
"""Blocks of earlier replies, which are not given to the model again."""


class Block(TextPart):
    """A block of a message; which fields it has depends on its type."""

    id: str = ""
    name: str = ""
    input: dict[str, object] = Field(default_factory=dict[str, object])
    tool_use_id: str = ""
    content: Content = ""
    is_error: bool | None = None


class InputMessage(Fields):
    role: Literal["user", "assistant", "system"]
    content: str | Items[Block]


def _conversation(system: Content, messages: Sequence[InputMessage]) -> Conversation:
    """The conversation of some messages, without a block that only identifies the program."""
    if not isinstance(system, str):
        system = [part for part in system if not part.text.startswith(_CHANGING_HEADER)]
    turns: list[Message] = []
    for index, message in enumerate(messages):
        turns += _turns(message, f"messages.{index}.content")
    return Conversation(text_of(system, "system", "\n\n"), turns)


def _turns(message: InputMessage, place: str) -> list[Message]:
    if isinstance(message.content, str):
        return [Message(message.role, message.content)]
    texts: list[str] = []
    calls: list[ToolCall] = []
    results: list[Message] = []
    for index, block in enumerate(message.content):
        where = f"{place}.{index}"
        if block.type == "tool_use" and message.role == "assistant":
            arguments = json.dumps(block.input, ensure_ascii=False)
            calls.append(ToolCall(block.id, block.name, arguments))
        elif block.type == "tool_result" and message.role == "user":
            content = text_of(block.content, f"{where}.content", "\n\n")
            text = f"Error: {content}" if block.is_error else content
            results.append(Message("tool", text, answers=block.tool_use_id or "unnamed"))
        elif block.type not in _IGNORED:
            texts.append(part_text(block, where))
    text = "\n\n".join(texts)
    if results and not text:
        return results
    return [*results, Message(message.role, text, tuple(calls))]


_Stop = Annotated[str, Field(min_length=1, max_length=MOST_STOP_CHARACTERS)]


class InputTool(Lenient):
    """A tool that the program runs itself; those of Anthropic's servers have another type."""

    type: Literal["custom"] | None = None
    name: str
    description: str = ""
    input_schema: dict[str, object]


class ToolChoice(Lenient):
    type: Literal["auto", "any", "tool", "none"] = "auto"
    name: str = ""
    disable_parallel_tool_use: bool = False


class OutputFormat(Fields):
    type: Literal["json_schema"]
    schema_: Annotated[dict[str, object], Field(alias="schema")]


class OutputConfig(Lenient):
    format: OutputFormat | None = None
    effort: Effort | None = None


class Thinking(Lenient):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=1)] | None = None


class CountRequest(Fields):
    """The body of a request to count tokens, and what a request for a reply has as well."""

    ignored = frozenset((
        "cache_control", "context_management", "inference_geo", "speed", "diagnostics",
        "user_profile_id",
    ))  # fmt: skip

    model: Annotated[str, Field(max_length=1024)] = ""
    messages: Annotated[Items[InputMessage], Field(min_length=1)]
    system: str | Items[TextPart] = ""
    tools: Items[InputTool] = Field(default_factory=list[InputTool])
    tool_choice: ToolChoice = ToolChoice()
    output_config: OutputConfig = OutputConfig()
    thinking: Thinking | None = None
    output_format: OutputFormat | None = None
    """Where the beta of structured outputs had it."""

    @property
    def offered(self) -> OfferedTools:
        tools = [as_tool(tool.name, tool.description, tool.input_schema) for tool in self.tools]
        choice = self.tool_choice
        kind = {"any": "required", "tool": "named"}.get(choice.type, choice.type)
        is_parallel = not choice.disable_parallel_tool_use
        return offered_tools(tools, kind, choice.name, is_parallel=is_parallel)

    def request(self, answering: Answering, stops: tuple[str, ...] = ()) -> Request:
        """The prompt of this request, and what its reply must look like."""
        conversation, begun = _conversation(self.system, self.messages), ""
        last = conversation.turns[-1] if conversation.turns else None
        if last is not None and last.role == "assistant" and not last.calls:
            begun = conversation.turns.pop().content
        if not conversation.turns:
            raise invalid("messages: there is nothing to answer", "messages")
        form, grammar = self.output_config.format or self.output_format, None
        if form is not None:
            grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(form.schema_))
        offered, asked = self.offered, self.thinking
        effort: str | None = self.output_config.effort
        if asked is not None:
            effort = "none" if asked.type == "disabled" else effort or THINK_ON
        budget = thinking(conversation, answering, effort, asked.budget_tokens if asked else None)
        return Request(
            conversation,
            answering.for_an_answer(),
            1 << 31,
            partial=begun,
            options=offered.options(ReplyOptions(stops, grammar, think_budget=budget)),
            tools=offered.tools,
            may_drop=False,
        )


class MessagesRequest(CountRequest):
    ignored = CountRequest.ignored | {"metadata", "service_tier"}

    max_tokens: Annotated[int, Field(ge=1, le=1 << 31)]
    stream: bool = False
    stop_sequences: Annotated[Items[_Stop], Field(max_length=MOST_STOPS)] = Field(
        default_factory=list[str]
    )
    temperature: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=0, le=1 << 31)] | None = None


_STOP_REASONS = {
    events.EndReason.STOP: "end_turn",
    events.EndReason.STOP_SEQUENCE: "stop_sequence",
    events.EndReason.LENGTH: "max_tokens",
    events.EndReason.CONTEXT: "model_context_window_exceeded",
    events.EndReason.TOOL_CALLS: "tool_use",
}


class MessageWriter(ReplyWriter):
    """Writes the reply to one request; model: the name of the one that answers."""

    def __init__(self, model: str) -> None:
        self._head: JsonObject = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._content: list[JsonObject] = []
        self._arguments = ""
        """Those of the open call."""
        self._open: object = None
        """What the open block is: its type, or the number of its call; None if none is open."""

    def frames(self, choice: int, event: events.ReplyEvent) -> Iterator[Frame]:
        del choice
        if isinstance(event, events.Begun):
            self._head["model"] = event.model
            usage = _input_usage(event.prompt_tokens, event.cached_prompt_tokens)
            message: JsonObject = {
                **self._head,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
            }
            yield _frame(
                "message_start", message={**message, "usage": {**usage, "output_tokens": 0}}
            )
            yield _frame("ping")
        elif isinstance(event, events.Ended):
            yield from self._closed()
            yield _frame("message_delta", delta=_end(event), usage=_usage(event))
        elif not isinstance(event, events.TextDelta) or event.text:
            yield from self._added(event)

    def end(self) -> Iterator[Frame]:
        yield _frame("message_stop")

    def failure(self, refusal: RefusedError) -> Iterator[Frame]:
        yield Frame(error_body(refusal), "error")

    def heartbeat(self) -> Frame:
        return _frame("ping")

    def body(self, choices: Sequence[Sequence[events.ReplyEvent]]) -> JsonObject:
        for event in choices[0]:
            for _ in self.frames(0, event):
                pass
        ended = cast("events.Ended", choices[0][-1])
        return {**self._head, "content": self._content, **_end(ended), "usage": _usage(ended)}

    def _added(self, event: events.Delta) -> Iterator[Frame]:
        if self._open != _block_of(event):
            yield from self._closed()
            self._content.append(_begun(event))
            self._open = _block_of(event)
            yield _frame("content_block_start", index=self._index, content_block=_begun(event))
        block, delta = self._content[-1], None
        if isinstance(event, events.ToolArguments):
            self._arguments += event.text
            delta = {"type": "input_json_delta", "partial_json": event.text}
        elif isinstance(event, events.TextDelta | events.ReasoningDelta):
            kind = str(block["type"])
            block[kind] = f"{block[kind]}{event.text}"
            delta = {"type": f"{kind}_delta", kind: event.text}
        if delta is not None:
            yield _frame("content_block_delta", index=self._index, delta=delta)

    def _closed(self) -> Iterator[Frame]:
        if self._open is None:
            return
        if self._content[-1]["type"] == "tool_use":
            self._content[-1]["input"], self._arguments = parsed_arguments(self._arguments), ""
        self._open = None
        yield _frame("content_block_stop", index=self._index)

    @property
    def _index(self) -> int:
        return len(self._content) - 1


def _frame(kind: str, **fields: object) -> Frame:
    return Frame({"type": kind, **fields}, kind)


def _block_of(event: events.Delta) -> object:
    if isinstance(event, events.ToolCallBegun | events.ToolArguments):
        return event.index
    return "thinking" if isinstance(event, events.ReasoningDelta) else "text"


def _begun(event: events.Delta) -> JsonObject:
    if isinstance(event, events.ToolCallBegun):
        return {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
    if isinstance(event, events.ReasoningDelta):
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def parsed_arguments(arguments: str) -> JsonObject:
    """Arguments as an object: of a text that was cut, what is whole."""
    try:
        value = loads_finite(arguments)
    except (ValueError, RecursionError):
        try:
            value = finite(from_json(arguments, allow_partial="trailing-strings"))
        except ValueError:
            value = None
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _end(event: events.Ended) -> JsonObject:
    return {"stop_reason": _STOP_REASONS[event.reason], "stop_sequence": event.stop_text or None}


def _usage(event: events.Ended) -> JsonObject:
    usage = event.usage
    read = _input_usage(usage.prompt_tokens, usage.cached_prompt_tokens)
    return {**read, "output_tokens": usage.completion_tokens}


def _input_usage(prompt_tokens: int, cached_tokens: int) -> JsonObject:
    """Tokens that were read: unlike in OpenAI's form, cached ones are counted apart."""
    return {
        "input_tokens": prompt_tokens - cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
    }


def _read(body: bytes, defaults: Answering, choose: Choose) -> tuple[AskedReply, MessageWriter]:
    asked = read_body(MessagesRequest, body)
    model = choose(asked.model)
    plain = asked.request(defaults, tuple(asked.stop_sequences))
    settings = asked_sampling(
        defaults, temperature=asked.temperature, top_p=asked.top_p, top_k=asked.top_k
    )
    request = replace(plain, settings=settings, max_tokens=asked.max_tokens)
    splitter = partial(asked.offered.splitter, is_begun=bool(plain.partial))
    reply = AskedReply(model, (request,), asked.stream, splitter=splitter)
    return reply, MessageWriter(model.name)


MESSAGES = Dialect("/v1/messages", _read, error_body)


def count_route(served: ServedEngine, defaults: Answering) -> Route:

    async def count(request: HttpRequest) -> JSONResponse:
        with served.counting.take():
            with served.reading.take():
                body = await json_body(request, served.limits)
            asked = await checked(body, lambda: read_body(CountRequest, body))
            model = served.models.choose(asked.model)
            prompt = await checked(body, lambda: asked.request(defaults))
            counted = asyncio.ensure_future(served.count(model, Answer(prompt)))
            tokens = await while_connected(counted, request.receive)
        return JSONResponse({"input_tokens": tokens})

    return Route("/v1/messages/count_tokens", count, methods=["POST"])
