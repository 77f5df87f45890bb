"""Writes replies as OpenAI's chat completions."""

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence

from app.serve.dialect import Frame, Json
from app.serve.openai.logprobs import logprobs_of
from app.serve.openai.openai_error import error_body
from app.serve.openai.usage import timings_of, usage_of
from app.serve.refusal import RefusedError
from app.serve.reply_events import (
    Begun,
    Ended,
    EndReason,
    ReasoningDelta,
    ReplyEvent,
    TextDelta,
    ToolArguments,
    ToolCallBegun,
)

_DONE = Frame("[DONE]")

FINISH_REASONS = {
    EndReason.STOP: "stop",
    EndReason.STOP_SEQUENCE: "stop",
    EndReason.LENGTH: "length",
    EndReason.CONTEXT: "length",
    EndReason.TOOL_CALLS: "tool_calls",
}

Fields = dict[str, object]


class ChatWriter:
    """Writes the replies to one request; model: the one that is expected to answer.

    choices: of each prompt.
    """

    def __init__(
        self, model: str, *, choices: int, includes_usage: bool, has_logprobs: bool
    ) -> None:
        self._head: Fields = {
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
            none: list[Fields] = []
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

    def _figures(self) -> Fields:
        return {"usage": usage_of(self._ended, self._choices), "timings": timings_of(self._ended)}

    def _of(self, kind: str) -> Fields:
        return {**self._head, "object": kind}

    def _chunk(
        self, choice: int, delta: Json, reason: str | None = None, logprobs: Json | None = None
    ) -> Frame:
        written = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return Frame({**self._of("chat.completion.chunk"), "choices": [written]})

    def _choice(self, index: int, events: Sequence[ReplyEvent]) -> Json:
        text, reasoning, reason = "", "", ""
        calls: dict[int, Fields] = {}
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
        message: Fields = {"role": "assistant", "content": text or (None if calls else "")}
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


def _delta(event: ReplyEvent) -> Fields:
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


def _call(name_id: str, name: str, arguments: str) -> Fields:
    return {"id": name_id, "type": "function", "function": {"name": name, "arguments": arguments}}
