"""Input items of OpenAI's responses, as turns of a conversation."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from app.chat.conversation import Conversation
from app.serve.refusal import invalid
from app.serve.request_body import Items, Lenient
from backends.chat.message import Message, ToolCall

_TEXTS = ("input_text", "output_text", "text", "refusal")


class Part(Lenient):
    """A part of a message's content, or of a tool's output."""

    type: Annotated[str, Field(max_length=64)]
    text: str = ""
    refusal: str = ""


class Item(Lenient):
    """An item of the input; which fields it has depends on its type."""

    type: Annotated[str, Field(max_length=64)] = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"
    content: str | Items[Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    output: str | Items[Part] = ""


def conversation_of(instructions: str, items: str | Sequence[Item]) -> Conversation:
    """The conversation of some instructions and items.

    Raises:
        RefusedError: an item is of a kind that is not read.
    """
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
        text = _text(item.output, f"{place}.output")
        return Message("tool", text, answers=item.call_id or "unnamed")
    if item.type == "message":
        role = "system" if item.role == "developer" else item.role
        if item.content is None:
            raise invalid(f"{place}.content is missing", f"{place}.content")
        return Message(role, _text(item.content, f"{place}.content"))
    where = f"{place}.type"
    raise invalid(f"{where}: {item.type!r} is not supported", where)


def _text(content: str | Sequence[Part], place: str) -> str:
    if isinstance(content, str):
        return content
    for index, part in enumerate(content):
        if part.type not in _TEXTS:
            where = f"{place}.{index}.type"
            raise invalid(f"{where}: {part.type!r} is not supported; this model reads text", where)
    return "".join(part.text or part.refusal for part in content)
