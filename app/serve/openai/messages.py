"""Messages of OpenAI's chat, as turns of a conversation."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from app.chat.conversation import Conversation
from app.serve.refusal import invalid
from app.serve.request_body import Fields, Items, Lenient
from backends.chat.message import Message, ToolCall


class TextPart(Lenient):
    """A part of a message's content."""

    type: Annotated[str, Field(max_length=64)]
    text: str = ""


class Function(Lenient):
    """The function of a call, and its arguments as JSON text."""

    name: str
    arguments: str = "{}"


class Call(Lenient):
    """A tool call in the history."""

    id: str = ""
    function: Function


Content = str | Items[TextPart]


class ChatMessage(Fields):
    """One message; reasoning of earlier turns is not given to the model again."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    """Only an assistant's message that calls tools may lack it."""
    tool_calls: Items[Call] = Field(default_factory=list[Call])
    tool_call_id: str = ""

    name: object = None
    refusal: object = None
    annotations: object = None
    audio: object = None
    reasoning: object = None
    reasoning_content: object = None
    reasoning_details: object = None
    function_call: object = None
    cache_control: object = None


def conversation_of(messages: Sequence[ChatMessage]) -> Conversation:
    """The conversation of some messages.

    Raises:
        RefusedError: one has no content, or content that is no text.
    """
    turns = (_turn(message, f"messages.{index}") for index, message in enumerate(messages))
    return Conversation.of(turns)


def text_of(content: Content, place: str) -> str:
    """The text of a content.

    Raises:
        RefusedError: a part of it is no text.
    """
    if isinstance(content, str):
        return content
    for index, part in enumerate(content):
        if part.type not in ("text", "input_text", "output_text"):
            where = f"{place}.{index}.type"
            raise invalid(f"{where}: {part.type!r} is not supported; this model reads text", where)
    return "".join(part.text for part in content)


def _turn(message: ChatMessage, place: str) -> Message:
    role = "system" if message.role == "developer" else message.role
    calls = tuple(
        ToolCall(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls
    )
    if message.function_call is not None:
        raise invalid(f"{place}.function_call is not supported; use tool_calls", place)
    if message.content is None and not (calls and role == "assistant"):
        raise invalid(f"{place}.content is missing", f"{place}.content")
    text = text_of(message.content or "", f"{place}.content")
    # A result without an id is still a result, which templates without tools show as a user's turn.
    answers = message.tool_call_id or ("unnamed" if role == "tool" else "")
    return Message(role, text, calls, answers)
