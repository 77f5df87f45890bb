"""Whether a chat template can tell a model of tools, tried with a small conversation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backends.chat.message import Message, Tool, ToolCall
from backends.chat.reply_form import ToolForm, tool_form

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
        if text is not None and _is_whole(text):
            return support
    return None


def _is_whole(text: str) -> bool:
    """Whether the call and its result are written, the arguments neither in Python nor quoted."""
    before, _, after = text.partition(_ARGUMENT)
    is_misquoted = before.endswith(("'", '\\"'))
    return _RESULT in after and not is_misquoted
