"""Output items of a response, filled as its events come."""

import uuid
from collections.abc import Iterator
from typing import Protocol

from app.serve.reply_events import Delta, ReasoningDelta, TextDelta, ToolArguments, ToolCallBegun

Fields = dict[str, object]
Told = tuple[str, Fields]
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

    def item(self, status: str) -> Fields:
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

    def item(self, status: str) -> Fields:
        """The message."""
        content = [self._part] if self._text else []
        head = {"id": self._id, "type": "message", "role": "assistant"}
        return {**head, "status": status, "content": content}

    @property
    def _place(self) -> Fields:
        return {"item_id": self._id, "content_index": 0}

    @property
    def _part(self) -> Fields:
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

    def item(self, status: str) -> Fields:
        """The reasoning; no summary of it is made."""
        content = [self._part] if self._text else []
        head: Fields = {"id": self._id, "type": "reasoning", "summary": []}
        return {**head, "status": status, "content": content}

    @property
    def _place(self) -> Fields:
        return {"item_id": self._id, "content_index": 0}

    @property
    def _part(self) -> Fields:
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
            fields: Fields = {"item_id": self._id, "delta": event.text}
            yield "function_call_arguments.delta", fields

    def done(self) -> Iterator[Told]:
        """All its arguments."""
        fields: Fields = {
            "item_id": self._id,
            "name": self._call.name,
            "arguments": self._arguments,
        }
        yield "function_call_arguments.done", fields

    def item(self, status: str) -> Fields:
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
