"""Turns of a conversation, and the tools that a model may call."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may ask to have called; parameters: its JSON schema, as text."""

    name: str
    description: str = ""
    parameters: str = "{}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool that the model asks for; arguments: a JSON object, as text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """Turn of a conversation; role is system, user, assistant or tool.

    calls: the tool calls that an assistant's turn ends with. answers: the id of the call whose
    result a tool's turn is. thinking: what an assistant thought before its content.
    """

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    thinking: str = ""
