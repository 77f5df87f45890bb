"""Writes a reply as OpenAI's response."""

import time
import uuid
from collections.abc import Iterator, Sequence

from app.serve.dialect import Frame, Json
from app.serve.openai.openai_error import error_body
from app.serve.refusal import RefusedError
from app.serve.reply_events import Begun, Delta, Ended, EndReason, ReplyEvent, TextDelta
from app.serve.responses.output_items import OutputItem, new_item
from app.serve.responses.responses_request import ResponsesRequest

_CUT = (EndReason.LENGTH, EndReason.CONTEXT)

Fields = dict[str, object]


class ResponseWriter:
    """Writes the reply to one request; model: the name of the one that answers."""

    def __init__(self, model: str, asked: ResponsesRequest) -> None:
        self._head = _head(model, asked)
        self._items: list[OutputItem] = []
        self._done: list[Fields] = []
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
            fields: Fields = {**self._place, "item": item.item("in_progress")}
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
    def _place(self) -> Fields:
        return {"output_index": len(self._items) - 1}

    def _frame(self, name: str, fields: Fields) -> Frame:
        kind = f"response.{name}"
        frame = Frame({"type": kind, "sequence_number": self._count, **fields}, kind)
        self._count += 1
        return frame

    def _response(self, status: str) -> Fields:
        reason = self._ended and self._ended.reason
        return {
            **self._head,
            "status": status,
            "output": list(self._done),
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if reason in _CUT else None,
            "usage": _usage(self._ended) if self._ended else None,
        }


def _head(model: str, asked: ResponsesRequest) -> Fields:
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


def _usage(ended: Ended) -> Fields:
    usage = ended.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
