"""The calls of one reply: which tools there are, and which were called so far."""

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import cast

from app.serve.reply_events import ToolArguments, ToolCallBegun
from app.serve.tools.finite_json import check_strictly
from backends.chat.message import Tool
from backends.chat.template_variables import as_object

_ID_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def call_id() -> str:
    """A new id of a call, as the strictest templates demand it: nine letters or digits."""
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(9))


class OpenCalls:
    """Calls of one reply, numbered as they begin. most: None for any number."""

    def __init__(self, tools: Sequence[Tool], most: int | None = None) -> None:
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._most = most
        self.count = 0

    @property
    def are_full(self) -> bool:
        """Whether no further call may follow."""
        return self._most is not None and self.count >= self._most

    def knows(self, name: str) -> bool:
        """Whether a tool of this name is offered."""
        return name in self._schemas

    def begin(self, name: str) -> ToolCallBegun:
        """The next call."""
        self.count += 1
        return ToolCallBegun(self.count - 1, call_id(), name)

    def arguments(self, text: str) -> ToolArguments:
        """Text added to the arguments of the latest call."""
        return ToolArguments(self.count - 1, text)

    def is_text(self, name: str, parameter: str) -> bool:
        """Whether a tool's parameter is a text by its schema."""
        return "string" in self._types(name, parameter)

    def value(self, name: str, parameter: str, text: str) -> str:
        """JSON of an argument that was written as plain text."""
        if self.is_text(name, parameter):
            return json.dumps(text, ensure_ascii=False)
        try:
            check_strictly(text)
        except (ValueError, RecursionError):
            word = {"True": "true", "False": "false", "None": "null"}.get(text.strip())
            return word or json.dumps(text, ensure_ascii=False)
        return text

    def _types(self, name: str, parameter: str) -> Sequence[object]:
        properties = _mapping((as_object(self._schemas.get(name, "")) or {}).get("properties"))
        kind = _mapping(properties.get(parameter)).get("type")
        return cast("list[object]", kind) if isinstance(kind, list) else [kind]


def _mapping(value: object) -> Mapping[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
