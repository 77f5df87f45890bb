"""Messages of Anthropic's dialect, as turns of a conversation."""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from app.chat.conversation import Conversation
from app.serve.refusal import RefusedError, invalid
from app.serve.request_body import Fields, Items, Lenient
from backends.chat.message import Message, ToolCall

_CHANGING_HEADER = "x-anthropic-billing-header"
"""Begins a block that Claude Code changes with each request, which would end every cache there."""

_IGNORED = ("thinking", "redacted_thinking")
"""Blocks of earlier replies that are not given to the model again."""


class TextBlock(Lenient):
    """A block of the system prompt, or of a tool's result."""

    type: Annotated[str, Field(max_length=64)]
    text: str = ""


class Block(TextBlock):
    """A block of a message; which fields it has depends on its type."""

    id: str = ""
    name: str = ""
    input: dict[str, object] = Field(default_factory=dict[str, object])
    tool_use_id: str = ""
    content: str | Items[TextBlock] = ""
    is_error: bool | None = None


class InputMessage(Fields):
    """One message: text, or blocks of text, tool calls and their results."""

    role: Literal["user", "assistant", "system"]
    content: str | Items[Block]


def system_text(system: str | Sequence[TextBlock]) -> str:
    """The system prompt, without a block that only identifies the program.

    Raises:
        RefusedError: a block is no text.
    """
    if isinstance(system, str):
        return system
    texts = [_text(block, f"system.{index}") for index, block in enumerate(system)]
    return "\n\n".join(text for text in texts if not text.startswith(_CHANGING_HEADER))


def conversation_of(
    system: str | Sequence[TextBlock], messages: Sequence[InputMessage]
) -> Conversation:
    """The conversation of some messages.

    Raises:
        RefusedError: a block is of a kind that is not read.
    """
    turns: list[Message] = []
    for index, message in enumerate(messages):
        turns += _turns(message, f"messages.{index}.content")
    return Conversation(system_text(system), turns)


def _turns(message: InputMessage, place: str) -> list[Message]:
    if isinstance(message.content, str):
        return [Message(message.role, message.content)]
    texts: list[str] = []
    calls: list[ToolCall] = []
    results: list[Message] = []
    for index, block in enumerate(message.content):
        where = f"{place}.{index}"
        if block.type == "tool_use" and message.role == "assistant":
            arguments = json.dumps(block.input, ensure_ascii=False)
            calls.append(ToolCall(block.id, block.name, arguments))
        elif block.type == "tool_result" and message.role == "user":
            results.append(_result(block, where))
        elif block.type not in _IGNORED:
            texts.append(_text(block, where))
    text = "\n\n".join(texts)
    if results and not text:
        return results
    return [*results, Message(message.role, text, tuple(calls))]


def _result(block: Block, place: str) -> Message:
    content = block.content
    if not isinstance(content, str):
        parts = [_text(part, f"{place}.content.{n}") for n, part in enumerate(content)]
        content = "\n\n".join(parts)
    text = f"Error: {content}" if block.is_error else content
    return Message("tool", text, answers=block.tool_use_id or "unnamed")


def _text(block: TextBlock, place: str) -> str:
    if block.type != "text":
        raise _unread(block.type, f"{place}.type")
    return block.text


def _unread(kind: str, place: str) -> RefusedError:
    return invalid(f"{place}: {kind!r} is not supported; this model reads text", place)
