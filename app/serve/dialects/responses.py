"""OpenAI's responses, without state."""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import Field

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.answer import Request
from app.engine.status import Loaded
from app.serve.dialect import (
    AskedReply,
    Begun,
    Delta,
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
from app.serve.dialects.openai import error_body
from app.serve.refusal import RefusedError, invalid
from app.serve.request_body import Fields, Items, Lenient, asked_sampling, read_body
from app.serve.tools.offered_tools import OfferedTools, offered_tools
from app.settings.answering import Answering
from backends.chat.message import Message, Tool, ToolCall
from decoding.constraint.grammar import Grammar, GrammarKind

_TEXTS = ("input_text", "output_text", "text", "refusal")


class Part(Lenient):
    """A part of a message's content, or of a tool's output."""

    type: Annotated[str, Field(max_length=64)]
    text: str = ""
    refusal: str = ""


class Item(Lenient):
    """An item of the input; which fields it has depends on its type."""

    type: Annotated[str, Field(max_length=64)] = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"
    content: str | Items[Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    output: str | Items[Part] = ""


def conversation_of(instructions: str, items: str | Sequence[Item]) -> Conversation:
    """The conversation of some instructions and items.

    Raises:
        RefusedError: an item is of a kind that is not read.
    """
    if isinstance(items, str):
        return Conversation(instructions, [Message("user", items)])
    turns: list[Message] = []
    for index, item in enumerate(items):
        turn = _turn(item, f"input.{index}")
        if turn is None:
            continue
        last = turns[-1] if turns else None
        if turn.calls and last is not None and last.role == "assistant":
            turns[-1] = Message(last.role, last.content, (*last.calls, *turn.calls))
        else:
            turns.append(turn)
    return Conversation.of(turns, instructions)


def _turn(item: Item, place: str) -> Message | None:
    """The turn of an item; None for reasoning, which is not given to the model again."""
    if item.type == "reasoning":
        return None
    if item.type == "function_call":
        return Message("assistant", "", (ToolCall(item.call_id, item.name, item.arguments),))
    if item.type == "function_call_output":
        text = _text(item.output, f"{place}.output")
        return Message("tool", text, answers=item.call_id or "unnamed")
    if item.type == "message":
        role = "system" if item.role == "developer" else item.role
        if item.content is None:
            raise invalid(f"{place}.content is missing", f"{place}.content")
        return Message(role, _text(item.content, f"{place}.content"))
    where = f"{place}.type"
    raise invalid(f"{where}: {item.type!r} is not supported", where)


def _text(content: str | Sequence[Part], place: str) -> str:
    if isinstance(content, str):
        return content
    for index, part in enumerate(content):
        if part.type not in _TEXTS:
            where = f"{place}.{index}.type"
            raise invalid(f"{where}: {part.type!r} is not supported; this model reads text", where)
    return "".join(part.text or part.refusal for part in content)


class InputTool(Lenient):
    """A tool; only functions can be called here, and others are left out."""

    type: Annotated[str, Field(max_length=64)]
    name: str = ""
    description: str = ""
    parameters: dict[str, object] = Field(default_factory=dict[str, object])


class NamedTool(Fields):
    """The function that must be called."""

    type: Literal["function"]
    name: str


class Format(Fields):
    """The form of the text: any, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    schema_: Annotated[dict[str, object], Field(alias="schema")] = Field(
        default_factory=dict[str, object]
    )

    name: object = None
    description: object = None
    strict: object = None

    @property
    def sent(self) -> dict[str, object]:
        """The form as it was sent."""
        return {"type": self.type, **self.model_dump(by_alias=True, exclude_unset=True)}

    @property
    def grammar(self) -> Grammar | None:
        """The grammar of the reply, None if it may be any text."""
        if self.type == "json_schema":
            return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(self.schema_))
        return Grammar(GrammarKind.JSON_OBJECT) if self.type == "json_object" else None


class TextConfig(Lenient):
    """The form of the text; how long it should be is the model's."""

    format: Format = Format()


class ResponsesRequest(Fields):
    """The body of a request to /v1/responses; nothing of it is stored."""

    model: Annotated[str, Field(max_length=1024)] = ""
    input: str | Items[Item]
    instructions: str = ""
    max_output_tokens: Annotated[int, Field(ge=1, le=1 << 31)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    stream: bool = False
    tools: Items[InputTool] = Field(default_factory=list[InputTool])
    tool_choice: Literal["auto", "none", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    text: TextConfig = TextConfig()
    truncation: Literal["auto", "disabled"] = "disabled"
    background: Literal[False] = False
    top_logprobs: Literal[0] = 0

    include: object = None
    max_tool_calls: object = None
    metadata: object = None
    prompt_cache_key: object = None
    prompt_cache_options: object = None
    prompt_cache_retention: object = None
    reasoning: object = None
    safety_identifier: object = None
    service_tier: object = None
    store: object = None
    stream_options: object = None
    client_metadata: object = None
    user: object = None

    @property
    def offered(self) -> OfferedTools:
        """The functions of this request.

        Raises:
            RefusedError: one is unusable.
        """
        tools = [
            Tool(tool.name, tool.description, json.dumps(tool.parameters, ensure_ascii=False))
            for tool in self.tools
            if tool.type == "function"
        ]
        choice = self.tool_choice
        kind, name = (choice, "") if isinstance(choice, str) else ("named", choice.name)
        return offered_tools(tools, kind, name, is_parallel=self.parallel_tool_calls)

    def asked(self, defaults: Answering) -> AskedReply:
        """The request, and how its reply is split.

        Raises:
            RefusedError: values are out of range, or contradict each other.
        """
        conversation = conversation_of(self.instructions, self.input)
        if not conversation.turns:
            raise invalid("input: there is nothing to answer", "input")
        offered = self.offered
        request = Request(
            conversation,
            asked_sampling(defaults, temperature=self.temperature, top_p=self.top_p),
            self.max_output_tokens or 1 << 31,
            options=offered.options(ReplyOptions(grammar=self.text.format.grammar)),
            tools=offered.tools,
            may_drop=self.truncation == "auto",
        )
        return AskedReply(
            (request,),
            self.stream,
            splitter=offered.splitter,
            prompt_field="input",
            form_field="tools" if offered.is_required else "text.format",
        )


JsonObject = dict[str, object]
Told = tuple[str, JsonObject]
"""The name of an event of the stream, without "response.", and its fields."""


class OutputItem(Protocol):
    """An item that is being written."""

    def takes(self, event: Delta) -> bool:
        """Whether an event belongs to it."""
        ...

    def begun(self) -> Iterator[Told]:
        """What follows the event that tells of it."""
        ...

    def added(self, event: Delta) -> Iterator[Told]:
        """What an event adds."""
        ...

    def done(self) -> Iterator[Told]:
        """What precedes the event that it is done."""
        ...

    def item(self, status: str) -> JsonObject:
        """The item so far."""
        ...


class MessageItem:
    """The text of a response."""

    def __init__(self) -> None:
        self._id = _new_id("msg")
        self._text = ""

    def takes(self, event: Delta) -> bool:
        """Whether it is text."""
        return isinstance(event, TextDelta)

    def begun(self) -> Iterator[Told]:
        """Its one part."""
        yield "content_part.added", {**self._place, "part": self._part}

    def added(self, event: Delta) -> Iterator[Told]:
        """More text."""
        assert isinstance(event, TextDelta)
        self._text += event.text
        yield "output_text.delta", {**self._place, "delta": event.text, "logprobs": []}

    def done(self) -> Iterator[Told]:
        """Its whole text."""
        yield "output_text.done", {**self._place, "text": self._text, "logprobs": []}
        yield "content_part.done", {**self._place, "part": self._part}

    def item(self, status: str) -> JsonObject:
        """The message."""
        content = [self._part] if self._text else []
        head = {"id": self._id, "type": "message", "role": "assistant"}
        return {**head, "status": status, "content": content}

    @property
    def _place(self) -> JsonObject:
        return {"item_id": self._id, "content_index": 0}

    @property
    def _part(self) -> JsonObject:
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": []}


class ReasoningItem:
    """What the model thinks before it answers."""

    def __init__(self) -> None:
        self._id = _new_id("rs")
        self._text = ""

    def takes(self, event: Delta) -> bool:
        """Whether it is reasoning."""
        return isinstance(event, ReasoningDelta)

    def begun(self) -> Iterator[Told]:
        """Its one part."""
        yield "content_part.added", {**self._place, "part": self._part}

    def added(self, event: Delta) -> Iterator[Told]:
        """More of it."""
        assert isinstance(event, ReasoningDelta)
        self._text += event.text
        yield "reasoning_text.delta", {**self._place, "delta": event.text}

    def done(self) -> Iterator[Told]:
        """The whole of it."""
        yield "reasoning_text.done", {**self._place, "text": self._text}
        yield "content_part.done", {**self._place, "part": self._part}

    def item(self, status: str) -> JsonObject:
        """The reasoning; no summary of it is made."""
        content = [self._part] if self._text else []
        head: JsonObject = {"id": self._id, "type": "reasoning", "summary": []}
        return {**head, "status": status, "content": content}

    @property
    def _place(self) -> JsonObject:
        return {"item_id": self._id, "content_index": 0}

    @property
    def _part(self) -> JsonObject:
        return {"type": "reasoning_text", "text": self._text}


class CallItem:
    """A call of a function."""

    def __init__(self, call: ToolCallBegun) -> None:
        self._id = _new_id("fc")
        self._call = call
        self._arguments = ""

    def takes(self, event: Delta) -> bool:
        """Whether it is of this call."""
        is_own = isinstance(event, ToolCallBegun | ToolArguments)
        return is_own and event.index == self._call.index

    def begun(self) -> Iterator[Told]:
        """Nothing: the item has the name."""
        return iter(())

    def added(self, event: Delta) -> Iterator[Told]:
        """More of its arguments."""
        if isinstance(event, ToolArguments):
            self._arguments += event.text
            fields: JsonObject = {"item_id": self._id, "delta": event.text}
            yield "function_call_arguments.delta", fields

    def done(self) -> Iterator[Told]:
        """All its arguments."""
        fields: JsonObject = {
            "item_id": self._id,
            "name": self._call.name,
            "arguments": self._arguments,
        }
        yield "function_call_arguments.done", fields

    def item(self, status: str) -> JsonObject:
        """The call."""
        head = {"id": self._id, "type": "function_call", "call_id": self._call.id}
        call = {"name": self._call.name, "arguments": self._arguments}
        return {**head, "status": status, **call}


def new_item(event: Delta) -> OutputItem:
    """The item that begins with an event."""
    if isinstance(event, TextDelta):
        return MessageItem()
    if isinstance(event, ReasoningDelta):
        return ReasoningItem()
    assert isinstance(event, ToolCallBegun)
    return CallItem(event)


def _new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"


_CUT = (EndReason.LENGTH, EndReason.CONTEXT)


class ResponseWriter:
    """Writes the reply to one request; model: the name of the one that answers."""

    def __init__(self, model: str, asked: ResponsesRequest) -> None:
        self._head = _head(model, asked)
        self._items: list[OutputItem] = []
        self._done: list[JsonObject] = []
        self._ended: Ended | None = None
        self._count = 0

    def frames(self, choice: int, event: ReplyEvent) -> Iterator[Frame]:
        """One event as events of the stream; there is one choice."""
        del choice
        if isinstance(event, Begun):
            self._head["model"] = event.model
            for name in ("created", "in_progress"):
                yield self._frame(name, {"response": self._response("in_progress")})
        elif isinstance(event, Ended):
            self._ended = event
            yield from self._close(self._status)
        elif not isinstance(event, TextDelta) or event.text:
            yield from self._add(event)

    def end(self) -> Iterator[Frame]:
        """The whole response."""
        status = self._status
        yield self._frame(status, {"response": self._response(status)})

    def failure(self, refusal: RefusedError) -> Iterator[Frame]:
        """The response that failed."""
        error = error_body(refusal)["error"]
        yield self._frame("failed", {"response": {**self._response("failed"), "error": error}})

    def heartbeat(self) -> Frame | None:
        """A comment."""
        return None

    def body(self, choices: Sequence[Sequence[ReplyEvent]]) -> Json:
        """The response as one object."""
        for event in choices[0]:
            for _ in self.frames(0, event):
                pass
        return self._response(self._status)

    @property
    def _status(self) -> str:
        is_cut = self._ended is not None and self._ended.reason in _CUT
        return "incomplete" if is_cut else "completed"

    def _add(self, event: Delta) -> Iterator[Frame]:
        if not self._is_open or not self._items[-1].takes(event):
            yield from self._close("completed")
            item = new_item(event)
            self._items.append(item)
            fields: JsonObject = {**self._place, "item": item.item("in_progress")}
            yield self._frame("output_item.added", fields)
            for name, told in item.begun():
                yield self._frame(name, {**self._place, **told})
        for name, told in self._items[-1].added(event):
            yield self._frame(name, {**self._place, **told})

    def _close(self, status: str) -> Iterator[Frame]:
        if not self._is_open:
            return
        item, place = self._items[-1], self._place
        for name, told in item.done():
            yield self._frame(name, {**place, **told})
        self._done.append(item.item(status))
        yield self._frame("output_item.done", {**place, "item": self._done[-1]})

    @property
    def _is_open(self) -> bool:
        return len(self._items) > len(self._done)

    @property
    def _place(self) -> JsonObject:
        return {"output_index": len(self._items) - 1}

    def _frame(self, name: str, fields: JsonObject) -> Frame:
        kind = f"response.{name}"
        frame = Frame({"type": kind, "sequence_number": self._count, **fields}, kind)
        self._count += 1
        return frame

    def _response(self, status: str) -> JsonObject:
        reason = self._ended and self._ended.reason
        return {
            **self._head,
            "status": status,
            "output": list(self._done),
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if reason in _CUT else None,
            "usage": _usage(self._ended) if self._ended else None,
        }


def _head(model: str, asked: ResponsesRequest) -> JsonObject:
    """What is known of a response before it begins; clients expect what was asked in it."""
    choice = asked.tool_choice
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
        "instructions": asked.instructions or None,
        "metadata": {},
        "parallel_tool_calls": asked.parallel_tool_calls,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "max_output_tokens": asked.max_output_tokens,
        "previous_response_id": None,
        "store": False,
        "text": {"format": asked.text.format.sent},
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "tools": [
            {**tool.model_dump(), "strict": False}
            for tool in asked.tools
            if tool.type == "function"
        ],
        "truncation": asked.truncation,
    }


def _usage(ended: Ended) -> JsonObject:
    usage = ended.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


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
