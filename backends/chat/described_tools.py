"""Tools described in words, for templates that know none."""

import json
from collections.abc import Sequence

from backends.chat.message import Message, Tool, ToolCall
from backends.chat.template_variables import as_object, tool_function

_HOW_TO_CALL = (
    "You can call functions. To call one, reply with nothing but a JSON object: "
    '{"name": "the name of the function", "arguments": {"an argument": "its value"}}. '
    "To call several, reply with an array of such objects. You are then told the results. "
    "Where no function helps, reply in words.\n\nThe functions:\n"
)


def describe_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Messages in which tools, calls and results are texts of the system, assistant and user."""
    names = {call.id: call.name for message in messages for call in message.calls}
    written: list[Message] = []
    for message in messages:
        turn = _written(message, names)
        if written and turn.role == written[-1].role == "user":
            turn = Message("user", f"{written.pop().content}\n\n{turn.content}")
        written.append(turn)
    if not tools:
        return written
    lines = [json.dumps(tool_function(tool), ensure_ascii=False) for tool in tools]
    description = _HOW_TO_CALL + "\n".join(lines)
    if written and written[0].role == "system":
        head = Message("system", f"{written[0].content}\n\n{description}")
        return [head, *written[1:]]
    return [Message("system", description), *written]


def _written(message: Message, names: dict[str, str]) -> Message:
    if message.answers or message.role == "tool":
        name = names.get(message.answers, "")
        return Message("user", f"Result of {name or 'the function'}:\n{message.content}")
    if not message.calls:
        return message
    calls = [_call(call) for call in message.calls]
    text = json.dumps(calls[0] if len(calls) == 1 else calls, ensure_ascii=False)
    content = f"{message.content}\n\n{text}" if message.content else text
    return Message(message.role, content)


def _call(call: ToolCall) -> dict[str, object]:
    arguments = as_object(call.arguments)
    return {"name": call.name, "arguments": call.arguments if arguments is None else arguments}
