"""Messages and tools in the shapes that chat templates expect, those of transformers."""

import hashlib
import json
import re
from collections.abc import Sequence, Set
from typing import cast

from backends.chat.message import Message, Tool, ToolCall

_SHORT_ID = re.compile("[A-Za-z0-9]{9}")
"""Mistral's templates refuse the id of a call that looks otherwise."""


def message_variables(
    messages: Sequence[Message], *, arguments_as_text: bool, in_parts: Set[str] = frozenset()
) -> list[dict[str, object]]:
    """Turns as a template reads them; the arguments of a call are an object or its JSON text.

    in_parts: roles whose contents are lists of parts. Thinking is told after the user's last words
    alone, between calls: templates that know of it would write earlier ones too, or leave it out.
    """
    last = max((place for place, turn in enumerate(messages) if turn.role == "user"), default=0)
    names = {call.id: call.name for message in messages for call in message.calls}
    turns: list[dict[str, object]] = []
    for place, message in enumerate(messages):
        parts = [{"type": "text", "text": message.content}] if message.role in in_parts else None
        turn: dict[str, object] = {"role": message.role, "content": parts or message.content}
        if message.thinking and place > last:
            turn["reasoning_content"] = message.thinking
        if message.calls:
            turn["tool_calls"] = [_call(call, arguments_as_text) for call in message.calls]
        if message.answers:
            turn["tool_call_id"] = _short_id(message.answers)
            turn["name"] = names.get(message.answers, "")
        turns.append(turn)
    return turns


def tool_variables(tools: Sequence[Tool]) -> list[dict[str, object]]:
    """Tools as a template reads them."""
    return [{"type": "function", "function": tool_function(tool)} for tool in tools]


def tool_function(tool: Tool) -> dict[str, object]:
    """A tool with its schema as an object."""
    parameters = as_object(tool.parameters)
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": {"type": "object", "properties": {}} if parameters is None else parameters,
    }


def as_object(text: str) -> dict[str, object] | None:
    """The JSON object that a text is, None if it is something else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _call(call: ToolCall, arguments_as_text: bool) -> dict[str, object]:
    parsed = None if arguments_as_text else as_object(call.arguments)
    arguments = call.arguments if parsed is None else parsed
    function = {"name": call.name, "arguments": arguments}
    return {"id": _short_id(call.id), "type": "function", "function": function}


def _short_id(text: str) -> str:
    is_short = _SHORT_ID.fullmatch(text) is not None
    return text if is_short else hashlib.sha256(text.encode()).hexdigest()[:9]
