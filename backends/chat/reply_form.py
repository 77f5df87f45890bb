"""How a model writes its tool calls and its thinking, as far as its prompt tells."""

from dataclasses import dataclass
from enum import StrEnum


class ToolForm(StrEnum):
    """A way to write tool calls in a reply."""

    HERMES = "hermes"
    """JSON objects between <tool_call> and </tool_call>: Hermes, Qwen; gpt-oss as spelled."""
    XML = "xml"
    """Functions and parameters in tags, between the same: Qwen3-Coder."""
    LLAMA = "llama"
    """A reply that is a JSON object, perhaps after <|python_tag|>: Llama 3.x."""
    MISTRAL = "mistral"
    """After [TOOL_CALLS], an array of JSON objects, or names and [ARGS]."""
    GENERIC = "generic"
    """A reply that is a JSON object or an array of such, as described in the system message."""


_CALL_MARKS = {
    ToolForm.HERMES: ("<tool_call>",),
    ToolForm.XML: ("<tool_call>", "<function="),
    ToolForm.LLAMA: ("<|python_tag|>",),
    ToolForm.MISTRAL: ("[TOOL_CALLS]",),
}


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """What a reply may be made of, beside its content.

    tools: how it calls tools, None if it has none to call. thinking: the text with which the
    prompt opens the thinking that the reply begins with, "" if it opens none. channels: whether it
    is written in channels.
    """

    tools: ToolForm | None = None
    thinking: str = ""
    channels: bool = False

    @property
    def call_marks(self) -> tuple[str, ...]:
        """What opens a call within the text."""
        return _CALL_MARKS.get(self.tools, ()) if self.tools else ()


PLAIN = ReplyForm()


def tool_form(source: str) -> ToolForm | None:
    """The form that a chat template teaches, by its text; None if it teaches no known one."""
    if "tools" not in source:
        return None
    if "<|channel|>" in source and "<|call|>" in source:
        return ToolForm.HERMES  # as which calls in channels are spelled
    if "<tool_call>" in source and "<arg_key>" not in source:
        return ToolForm.XML if "<parameter=" in source else ToolForm.HERMES
    if "[TOOL_CALLS]" in source:
        return ToolForm.MISTRAL
    if "<|start_header_id|>" in source and "<function=" not in source:
        return ToolForm.LLAMA
    return None
