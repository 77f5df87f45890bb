"""Messages and tools as chat templates expect them, or in words for templates that know none."""

import hashlib
import json
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Protocol, cast

from backends.chat.message import Message, Tool, ToolCall
from backends.chat.reply_form import ToolForm, tool_form

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
    return [{"type": "function", "function": tool_function(tool)} for tool in tools]


def tool_function(tool: Tool) -> dict[str, object]:
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


_ARGUMENT, _RESULT = "called_argument", "called result"
_TOOL = Tool(
    "described_function",
    "Description.",
    '{"type": "object", "properties": {"described_argument": {"type": "string"}}}',
)
_USER = Message("user", "Hi")
_ID = "call00000"
_CALLED = [
    _USER,
    Message("assistant", "", (ToolCall(_ID, _TOOL.name, f'{{"{_ARGUMENT}": "value"}}'),)),
    Message("tool", _RESULT, answers=_ID),
]


@dataclass(frozen=True, slots=True)
class ToolSupport:
    """How a template takes tools, and how the model then calls them.

    arguments_as_text: whether it writes arguments as they are given, so that they have to be text.
    """

    form: ToolForm
    arguments_as_text: bool = False


class Render(Protocol):
    """Renders a conversation with the template; None if that fails."""

    def __call__(
        self, messages: Sequence[Message], tools: Sequence[Tool], support: ToolSupport
    ) -> str | None: ...


def probe_tool_support(source: str, render: Render) -> ToolSupport | None:
    """How a template takes tools; None if it ignores them, or in no form that is understood."""
    form = tool_form(source)
    if form is None:
        return None
    support = ToolSupport(form)
    told = render([_USER], [_TOOL], support)
    if told is None or told == render([_USER], [], support):
        return None
    for support in (ToolSupport(form), ToolSupport(form, arguments_as_text=True)):
        text = render(_CALLED, [_TOOL], support)
        before, _, after = (text or "").partition(_ARGUMENT)
        is_misquoted = before.endswith(("'", '\\"'))  # written in Python, or as a text
        if _RESULT in after and not is_misquoted:
            return support
    return None


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
    calls = [
        {"name": call.name, "arguments": call.arguments if parsed is None else parsed}
        for call in message.calls
        for parsed in [as_object(call.arguments)]
    ]
    text = json.dumps(calls[0] if len(calls) == 1 else calls, ensure_ascii=False)
    content = f"{message.content}\n\n{text}" if message.content else text
    return Message(message.role, content)
