"""The tools that a program offers, and whether the model must call one."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from app.chat.conversation import ReplyOptions
from app.serve.refusal import invalid
from app.serve.server_options import MOST_TOOLS
from app.tools.reply_splitter import ReplySplitter
from backends.chat.message import Tool
from backends.chat.reply_form import ReplyForm, ToolForm
from backends.chat.tools import tool_function
from decoding.constraint.grammar import Grammar, GrammarKind

_NAME = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")
_OF_DOCUMENTS = ("$schema", "$id")
"""Keys of a schema that is a document; within another they would change what references mean."""
_MOST_NESTED = 64
"""Deepest schema of a tool: more is an accident, or an attack."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """Tools of one request.

    is_required: whether one of them must be called, which the reply is then limited to.
    most_calls: in one reply, None for any number.
    """

    tools: tuple[Tool, ...] = ()
    is_required: bool = False
    most_calls: int | None = None

    def options(self, options: ReplyOptions) -> ReplyOptions:
        """Options of a reply that may call these tools; a text that ends it would only cut a call.

        Raises:
            RefusedError: the reply must match a grammar, so that it cannot call any.
        """
        if not self.tools:
            return options
        if options.grammar is not None:
            raise invalid("an answer of a given form cannot call tools: set tool_choice to none")
        if self.is_required:
            schema = json.dumps(call_schema(self.tools))
            return replace(options, grammar=Grammar(GrammarKind.JSON_SCHEMA, schema), stops=())
        return replace(options, shows_control=True)

    def splitter(self, form: ReplyForm, *, is_begun: bool = False) -> ReplySplitter:
        """The splitter of a reply. is_begun: whether it continues text, so that it cannot think."""
        if self.is_required:
            form = replace(form, tools=ToolForm.GENERIC)
        return ReplySplitter(
            form, self.tools, self.most_calls, has_thinking=not is_begun, is_call=self.is_required
        )


def offered_tools(
    tools: Sequence[Tool], choice: str = "auto", name: str = "", *, is_parallel: bool = True
) -> OfferedTools:
    """Tools of a request. choice: auto, none, required, or named for the one of a name.

    Raises:
        RefusedError: a tool has no usable name or schema, or the named one is missing.
    """
    if len(tools) > MOST_TOOLS:
        raise invalid(f"tools: at most {MOST_TOOLS} are read", "tools")
    for index, tool in enumerate(tools):
        _check(tool, f"tools.{index}")
    if len({tool.name for tool in tools}) < len(tools):
        raise invalid("tools: two have the same name", "tools")
    if choice == "none":
        return OfferedTools()
    if choice == "named":
        tools = [tool for tool in tools if tool.name == name]
    if choice == "required" and not tools:
        raise invalid("tool_choice is required, but there are no tools", "tool_choice")
    if choice == "named" and not tools:
        raise invalid("tool_choice: there is no such tool", "tool_choice")
    is_required = choice in ("named", "required")
    return OfferedTools(tuple(tools), is_required, None if is_parallel else 1)


def call_schema(tools: Sequence[Tool]) -> dict[str, object]:
    definitions: dict[str, object] = {}
    for index, tool in enumerate(tools):
        given = cast("Mapping[str, object]", tool_function(tool)["parameters"])
        schema = {key: value for key, value in given.items() if key not in _OF_DOCUMENTS}
        definitions[str(index)] = _moved({"type": "object", **schema}, f"#/$defs/{index}")
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": {"$ref": f"#/$defs/{index}"}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for index, tool in enumerate(tools)
    ]
    return {"anyOf": calls, "$defs": definitions}


def _moved(value: object, place: str) -> object:
    """A schema whose references into itself hold at another place."""
    if isinstance(value, list):
        return [_moved(item, place) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    moved: dict[str, object] = {}
    for key, item in cast("dict[str, object]", value).items():
        is_reference = key == "$ref" and isinstance(item, str) and item.startswith("#")
        moved[key] = place + str(item)[1:] if is_reference else _moved(item, place)
    return moved


def _check(tool: Tool, place: str) -> None:
    if not _NAME.fullmatch(tool.name):
        raise invalid(f"{place}: {tool.name[:100]!r} is no name of a function", place)
    schema = cast("Mapping[str, object]", json.loads(tool.parameters))
    if schema.get("type", "object") != "object":
        raise invalid(f"{place}: the type of its parameters must be 'object'", place)
    if _depth(schema) > _MOST_NESTED:
        raise invalid(f"{place}: its schema is nested too deeply", place)


def _depth(value: object) -> int:
    depth, layer = 0, [value]
    while layer:
        depth += 1
        layer = [inner for item in layer for inner in _inside(item)]
    return depth


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(cast("dict[str, object]", value).values())
    return cast("list[object]", value) if isinstance(value, list) else []
