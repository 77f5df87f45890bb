"""Writes a reply as Anthropic's message."""

import uuid
from collections.abc import Iterator, Sequence
from typing import cast

from pydantic_core import from_json

from app.serve.anthropic.anthropic_error import error_body
from app.serve.dialect import Frame, Json
from app.serve.refusal import RefusedError
from app.serve.reply_events import (
    Begun,
    Delta,
    Ended,
    EndReason,
    ReasoningDelta,
    ReplyEvent,
    TextDelta,
    ToolArguments,
    ToolCallBegun,
)
from app.serve.tools.finite_json import finite, loads_finite

STOP_REASONS = {
    EndReason.STOP: "end_turn",
    EndReason.STOP_SEQUENCE: "stop_sequence",
    EndReason.LENGTH: "max_tokens",
    EndReason.CONTEXT: "model_context_window_exceeded",
    EndReason.TOOL_CALLS: "tool_use",
}

Fields = dict[str, object]


class MessageWriter:
    """Writes the reply to one request; model: the name of the one that answers."""

    def __init__(self, model: str) -> None:
        self._head: Fields = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._index = -1
        """Number of the latest block."""
        self._open: object = None
        """What the open block is: its type, or the number of its call; None if none is open."""

    def frames(self, choice: int, event: ReplyEvent) -> Iterator[Frame]:
        """One event as events of the stream; there is one choice."""
        del choice
        if isinstance(event, Begun):
            self._head["model"] = event.model
            usage = _input_usage(event.prompt_tokens, event.cached_prompt_tokens)
            message: Fields = {
                **self._head,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
            }
            yield _frame("message_start", message={**message, "usage": {**usage, **_output(0)}})
            yield _frame("ping")
        elif isinstance(event, Ended):
            yield from self._closed()
            yield _frame("message_delta", delta=_end(event), usage=_usage(event))
        elif not isinstance(event, TextDelta) or event.text:
            yield from self._added(event)

    def end(self) -> Iterator[Frame]:
        """The end of the message."""
        yield _frame("message_stop")

    def failure(self, refusal: RefusedError) -> Iterator[Frame]:
        """The error as the last event."""
        yield Frame(error_body(refusal), "error")

    def heartbeat(self) -> Frame | None:
        """An event that clients skip."""
        return _frame("ping")

    def body(self, choices: Sequence[Sequence[ReplyEvent]]) -> Json:
        """The message as one object."""
        events = choices[0]
        content: list[Fields] = []
        arguments: dict[int, str] = {}
        for event in events:
            if isinstance(event, Begun):
                self._head["model"] = event.model
            elif isinstance(event, TextDelta):
                _append(content, "text", event.text)
            elif isinstance(event, ReasoningDelta):
                _append(content, "thinking", event.text)
            elif isinstance(event, ToolCallBegun):
                content.append(_begun(event))
            elif isinstance(event, ToolArguments):
                arguments[event.index] = arguments.get(event.index, "") + event.text
        calls = [block for block in content if block["type"] == "tool_use"]
        for index, block in enumerate(calls):
            block["input"] = _parsed(arguments.get(index, ""))
        ended = cast("Ended", events[-1])
        return {**self._head, "content": content, **_end(ended), "usage": _usage(ended)}

    def _added(self, event: Delta) -> Iterator[Frame]:
        if self._open != _block_of(event):
            yield from self._closed()
            self._index += 1
            self._open = _block_of(event)
            yield _frame("content_block_start", index=self._index, content_block=_begun(event))
        delta = _delta(event)
        if delta is not None:
            yield _frame("content_block_delta", index=self._index, delta=delta)

    def _closed(self) -> Iterator[Frame]:
        if self._open is not None:
            self._open = None
            yield _frame("content_block_stop", index=self._index)


def _frame(kind: str, **fields: object) -> Frame:
    return Frame({"type": kind, **fields}, kind)


def _block_of(event: Delta) -> object:
    """What tells the block of an event from others."""
    if isinstance(event, ToolCallBegun | ToolArguments):
        return event.index
    return "thinking" if isinstance(event, ReasoningDelta) else "text"


def _begun(event: Delta) -> Fields:
    """The block that begins with an event, still empty."""
    if isinstance(event, ToolCallBegun):
        return {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
    if isinstance(event, ReasoningDelta):
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def _delta(event: Delta) -> Fields | None:
    if isinstance(event, TextDelta):
        return {"type": "text_delta", "text": event.text}
    if isinstance(event, ReasoningDelta):
        return {"type": "thinking_delta", "thinking": event.text}
    if isinstance(event, ToolArguments):
        return {"type": "input_json_delta", "partial_json": event.text}
    return None


def _append(content: list[Fields], kind: str, text: str) -> None:
    """Add text to the last block if it is of this kind, else to a new one."""
    if not text:
        return
    if not content or content[-1]["type"] != kind:
        content.append(_begun(TextDelta("") if kind == "text" else ReasoningDelta("")))
    content[-1][kind] = f"{content[-1][kind]}{text}"


def _parsed(arguments: str) -> Fields:
    """Arguments as an object: of a text that was cut, what is whole."""
    try:
        value = loads_finite(arguments)
    except (ValueError, RecursionError):
        try:
            value = finite(from_json(arguments, allow_partial="trailing-strings"))
        except ValueError:
            value = None
    return cast("Fields", value) if isinstance(value, dict) else {}


def _end(event: Ended) -> Fields:
    return {
        "stop_reason": STOP_REASONS[event.reason],
        "stop_sequence": event.stop_text or None,
    }


def _usage(event: Ended) -> Fields:
    usage = event.usage
    read = _input_usage(usage.prompt_tokens, usage.cached_prompt_tokens)
    return {**read, **_output(usage.completion_tokens)}


def _input_usage(prompt_tokens: int, cached_tokens: int) -> Fields:
    """Tokens that were read: unlike in OpenAI's form, cached ones are counted apart."""
    return {
        "input_tokens": prompt_tokens - cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
    }


def _output(tokens: int) -> Fields:
    return {"output_tokens": tokens}
