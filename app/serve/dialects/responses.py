"""OpenAI's responses, without state."""

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.reply import Request
from app.serve.dialect import AskedReply, Choose, Dialect, Frame, JsonObject, ReplyWriter
from app.serve.dialects.openai import error_body
from app.serve.offered_tools import OfferedTools, offered_tools
from app.serve.refusal import RefusedError, invalid
from app.serve.request_body import (
    Content,
    Effort,
    Fields,
    Items,
    Lenient,
    as_tool,
    asked_sampling,
    read_body,
    text_of,
    thinking,
)
from app.settings.answering import Answering
from app.tools import events
from backends.chat.message import Message, ToolCall
from decoding.constraint.grammar import Grammar, GrammarKind


class Item(Lenient):
    """An item of the input; which fields it has depends on its type."""

    type: Annotated[str, Field(max_length=64)] = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"
    content: Content | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    output: Content = ""


def conversation_of(instructions: str, items: str | Sequence[Item]) -> Conversation:
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
        text = text_of(item.output, f"{place}.output")
        return Message("tool", text, answers=item.call_id or "unnamed")
    if item.type == "message":
        role = "system" if item.role == "developer" else item.role
        if item.content is None:
            raise invalid(f"{place}.content is missing", f"{place}.content")
        return Message(role, text_of(item.content, f"{place}.content"))
    where = f"{place}.type"
    raise invalid(f"{where}: {item.type!r} is not supported", where)


class InputTool(Lenient):
    """A tool; only functions can be called here, and others are left out."""

    type: Annotated[str, Field(max_length=64)]
    name: str = ""
    description: str = ""
    parameters: dict[str, object] = Field(default_factory=dict[str, object])


class NamedTool(Fields):
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
        return {"type": self.type, **self.model_dump(by_alias=True, exclude_unset=True)}

    @property
    def grammar(self) -> Grammar | None:
        if self.type == "json_schema":
            return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(self.schema_))
        return Grammar(GrammarKind.JSON_OBJECT) if self.type == "json_object" else None


class TextConfig(Lenient):
    """The form of the text; how long it should be is the model's."""

    format: Format = Format()


class ReasoningConfig(Lenient):
    effort: Effort | None = None


class ResponsesRequest(Fields):
    """The body of a request to /v1/responses; nothing of it is stored."""

    ignored = frozenset((
        "include", "max_tool_calls", "metadata", "prompt_cache_key", "prompt_cache_options",
        "prompt_cache_retention", "safety_identifier", "service_tier", "store",
        "stream_options", "client_metadata", "user",
    ))  # fmt: skip

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
    reasoning: ReasoningConfig = ReasoningConfig()
    truncation: Literal["auto", "disabled"] = "disabled"
    background: Literal[False] = False
    top_logprobs: Literal[0] = 0

    @property
    def offered(self) -> OfferedTools:
        tools = [
            as_tool(tool.name, tool.description, tool.parameters)
            for tool in self.tools
            if tool.type == "function"
        ]
        choice = self.tool_choice
        kind, name = (choice, "") if isinstance(choice, str) else ("named", choice.name)
        return offered_tools(tools, kind, name, is_parallel=self.parallel_tool_calls)


_Told = Iterable[tuple[str, JsonObject]]
"""Names of events of the stream, without "response.", and their fields."""


class TextItem:
    """The text of a response. more, of_part: further fields of its events and parts."""

    kind: ClassVar[type[events.Delta]] = events.TextDelta
    prefix, part = "msg", "output_text"
    head: ClassVar[JsonObject] = {"type": "message", "role": "assistant"}
    more: ClassVar[JsonObject] = {"logprobs": []}
    of_part: ClassVar[JsonObject] = {"annotations": [], "logprobs": []}

    def __init__(self) -> None:
        self._id = _new_id(self.prefix)
        self._text = ""

    def takes(self, event: events.Delta) -> bool:
        return isinstance(event, self.kind)

    def begun(self) -> _Told:
        yield "content_part.added", {**self._place, "part": self._part}

    def added(self, event: events.Delta) -> _Told:
        assert isinstance(event, events.TextDelta | events.ReasoningDelta)
        self._text += event.text
        fields = {**self._place, "delta": event.text, **self.more}
        yield f"{self.part}.delta", fields

    def done(self) -> _Told:
        fields = {**self._place, "text": self._text, **self.more}
        yield f"{self.part}.done", fields
        yield "content_part.done", {**self._place, "part": self._part}

    def item(self, status: str) -> JsonObject:
        content = [self._part] if self._text else []
        return {"id": self._id, **self.head, "status": status, "content": content}

    @property
    def _place(self) -> JsonObject:
        return {"item_id": self._id, "content_index": 0}

    @property
    def _part(self) -> JsonObject:
        return {"type": self.part, "text": self._text, **self.of_part}


class ReasoningItem(TextItem):
    """What the model thinks before it answers; no summary of it is made."""

    kind = events.ReasoningDelta
    prefix, part = "rs", "reasoning_text"
    head: ClassVar[JsonObject] = {"type": "reasoning", "summary": []}
    more: ClassVar[JsonObject] = {}
    of_part: ClassVar[JsonObject] = {}


class CallItem:
    def __init__(self, call: events.ToolCallBegun) -> None:
        self._id = _new_id("fc")
        self._call = call
        self._arguments = ""

    def takes(self, event: events.Delta) -> bool:
        is_own = isinstance(event, events.ToolCallBegun | events.ToolArguments)
        return is_own and event.index == self._call.index

    def begun(self) -> _Told:
        return ()

    def added(self, event: events.Delta) -> _Told:
        if isinstance(event, events.ToolArguments):
            self._arguments += event.text
            yield "function_call_arguments.delta", {"item_id": self._id, "delta": event.text}

    def done(self) -> _Told:
        yield "function_call_arguments.done", {"item_id": self._id, **self._named}

    def item(self, status: str) -> JsonObject:
        head = {"id": self._id, "type": "function_call", "call_id": self._call.id}
        return {**head, "status": status, **self._named}

    @property
    def _named(self) -> JsonObject:
        return {"name": self._call.name, "arguments": self._arguments}


def _new_item(event: events.Delta) -> TextItem | CallItem:
    if isinstance(event, events.TextDelta | events.ReasoningDelta):
        return TextItem() if isinstance(event, events.TextDelta) else ReasoningItem()
    assert isinstance(event, events.ToolCallBegun)
    return CallItem(event)


def _new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"


_CUT = (events.EndReason.LENGTH, events.EndReason.CONTEXT)


class ResponseWriter(ReplyWriter):
    def __init__(self, model: str, asked: ResponsesRequest) -> None:
        self._head = _head(model, asked)
        self._items: list[TextItem | CallItem] = []
        self._done: list[JsonObject] = []
        self._ended: events.Ended | None = None
        self._count = 0

    def frames(self, choice: int, event: events.ReplyEvent) -> Iterator[Frame]:
        del choice
        if isinstance(event, events.Begun):
            self._head["model"] = event.model
            for name in ("created", "in_progress"):
                yield self._frame(name, {"response": self._response("in_progress")})
        elif isinstance(event, events.Ended):
            self._ended = event
            yield from self._close(self._status)
        elif not isinstance(event, events.TextDelta) or event.text:
            yield from self._add(event)

    def end(self) -> Iterator[Frame]:
        status = self._status
        yield self._frame(status, {"response": self._response(status)})

    def failure(self, refusal: RefusedError) -> Iterator[Frame]:
        error = error_body(refusal)["error"]
        yield self._frame("failed", {"response": {**self._response("failed"), "error": error}})

    def body(self, choices: Sequence[Sequence[events.ReplyEvent]]) -> JsonObject:
        for event in choices[0]:
            for _ in self.frames(0, event):
                pass
        return self._response(self._status)

    @property
    def _status(self) -> str:
        is_cut = self._ended is not None and self._ended.reason in _CUT
        return "incomplete" if is_cut else "completed"

    def _add(self, event: events.Delta) -> Iterator[Frame]:
        if not self._is_open or not self._items[-1].takes(event):
            yield from self._close("completed")
            item = _new_item(event)
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


_TOLD_AS_ASKED = {
    "parallel_tool_calls", "temperature", "top_p", "max_output_tokens", "truncation"
}  # fmt: skip


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
        **asked.model_dump(include=_TOLD_AS_ASKED),
        "previous_response_id": None,
        "store": False,
        "text": {"format": asked.text.format.sent},
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "tools": [
            {**tool.model_dump(), "strict": False}
            for tool in asked.tools
            if tool.type == "function"
        ],
    }


def _usage(ended: events.Ended) -> JsonObject:
    usage = ended.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _read(body: bytes, defaults: Answering, choose: Choose) -> tuple[AskedReply, ResponseWriter]:
    asked = read_body(ResponsesRequest, body)
    model = choose(asked.model)
    conversation = conversation_of(asked.instructions, asked.input)
    if not conversation.turns:
        raise invalid("input: there is nothing to answer", "input")
    offered = asked.offered
    budget = thinking(conversation, defaults, asked.reasoning.effort)
    options = ReplyOptions(grammar=asked.text.format.grammar, think_budget=budget)
    request = Request(
        conversation,
        asked_sampling(defaults, temperature=asked.temperature, top_p=asked.top_p),
        asked.max_output_tokens or 1 << 31,
        options=offered.options(options),
        tools=offered.tools,
        may_drop=asked.truncation == "auto",
    )
    reply = AskedReply(
        model,
        (request,),
        asked.stream,
        splitter=offered.splitter,
        prompt_field="input",
        form_field="tools" if offered.is_required else "text.format",
    )
    return reply, ResponseWriter(model.name, asked)


RESPONSES = Dialect("/v1/responses", _read, error_body)
