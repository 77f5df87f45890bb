"""Changes every text in messages and tools, also those inside JSON."""

import json
from collections.abc import Callable, Sequence
from typing import cast

from backends.chat.message import Message, Tool, ToolCall

Change = Callable[[str], str]


def changed_message(message: Message, change: Change) -> Message:
    """A message with its content, thinking, calls and answer changed."""
    calls = tuple(
        ToolCall(change(call.id), change(call.name), changed_json(call.arguments, change))
        for call in message.calls
    )
    content, thinking = change(message.content), change(message.thinking)
    return Message(message.role, content, calls, change(message.answers), thinking)


def changed_tool(tool: Tool, change: Change) -> Tool:
    """A tool with its name, description and parameters changed."""
    parameters = changed_json(tool.parameters, change)
    return Tool(change(tool.name), change(tool.description), parameters)


def changed_json(text: str, change: Change) -> str:
    """JSON with every string and key in it changed; what is not JSON is changed as one text."""
    try:
        value = json.loads(text)
        changed = _changed(value, change)
    except (ValueError, RecursionError):
        return change(text)
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def texts_of(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[str]:
    """Every text in messages and tools."""
    texts: list[str] = []

    def seen(text: str) -> str:
        texts.append(text)
        return text

    for message in messages:
        changed_message(message, seen)
    for tool in tools:
        changed_tool(tool, seen)
    return texts


def _changed(value: object, change: Change) -> object:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_changed(item, change) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {change(key): _changed(item, change) for key, item in items}
    return value
