"""The calls of one reply: which tools there are, and which were called so far."""

import json
import math
import secrets
from collections.abc import Sequence
from typing import NoReturn, cast
from urllib.parse import unquote

from app.tools.events import ToolArguments, ToolCallBegun
from app.values import items, mapping
from backends.chat.message import Tool
from backends.chat.tools import as_object


def loads_finite(text: str) -> object:
    """The value of a text; a number that is none, or too large to be sent on, is null.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(
        text, parse_float=lambda one: finite(float(one)), parse_constant=lambda _: None
    )


def finite(value: object) -> object:
    """A value with null in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [finite(item) for item in cast("list[object]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_ID_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_OTHER_TEXT = "\0"
"""A text that no schema enumerates."""
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_COMBINED = ("allOf", "anyOf", "oneOf")

_Known = dict[str, bool | None]
"""What references were found to allow."""


def call_id() -> str:
    """A new id of a call, as the strictest templates demand it: nine letters or digits."""
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(9))


class OpenCalls:
    """Calls of one reply, numbered as they begin. most: None for any number."""

    def __init__(self, tools: Sequence[Tool], most: int | None = None) -> None:
        schemas = {tool.name: as_object(tool.parameters) for tool in tools}
        self._schemas = {name: Schema([schema], schema) for name, schema in schemas.items()}
        self._most = most
        self.count = 0

    @property
    def are_full(self) -> bool:
        return self._most is not None and self.count >= self._most

    def knows(self, name: str) -> bool:
        return name in self._schemas

    def begin(self, name: str) -> ToolCallBegun:
        self.count += 1
        return ToolCallBegun(self.count - 1, call_id(), name)

    def arguments(self, text: str) -> ToolArguments:
        return ToolArguments(self.count - 1, text)

    def argument(self, name: str, parameter: str) -> "Argument":
        """The argument of a call, by the schema of its tool."""
        return Argument(self._schemas.get(name, _NO_SCHEMA).of(parameter))


class Argument:
    """An argument that is written as plain text, as in tags.

    It is a text where its schema allows this text, as llama.cpp has it, but for `null` where it
    allows null as well; else what it is as JSON, or as Python's words. vLLM prefers any other type
    to text, which makes a number of a postal code; Qwen's own parser takes null for any type.
    """

    def __init__(self, schema: "Schema") -> None:
        self._schema = schema
        self._may_be_text = schema.allows(_OTHER_TEXT) is True
        self._may_be_null = schema.allows(None) is True

    def is_text(self, begun: str) -> bool:
        """Whether it is a text if it begins so, whatever follows."""
        return self._may_be_text and not (self._may_be_null and "null".startswith(begun))

    def value(self, text: str) -> str:
        """JSON of the whole argument."""
        is_null = self._may_be_null and text == "null"
        if self._schema.allows(text) is not True or is_null:
            try:
                json.loads(text, parse_constant=_refuse)
            except (ValueError, RecursionError):
                if word := _PYTHON.get(text.strip()):
                    return word
            else:
                return text
        return json.dumps(text, ensure_ascii=False)


class Schema:
    """A part of a JSON schema: which texts it allows, and whether null.

    root: the whole schema, into which references lead.
    """

    def __init__(self, parts: Sequence[object], root: object) -> None:
        self._parts = parts
        self._root = root

    def of(self, name: str) -> "Schema":
        """The schema of a property, through references and combinations of schemas."""
        named: list[object] = []
        others: list[object] = []
        waiting, seen = [*self._parts], set[int]()
        while waiting:
            schema = mapping(waiting.pop())
            if id(schema) in seen:
                continue
            seen.add(id(schema))
            properties = mapping(schema.get("properties"))
            if name in properties:
                named.append(properties[name])
            others.append(schema.get("additionalProperties"))
            waiting += (item for key in _COMBINED for item in items(schema.get(key)))
            waiting.append(self._referred(schema.get("$ref")))
        return Schema(named or others, self._root)

    def allows(self, value: str | None) -> bool | None:
        """Whether its types and enumerated values allow a text or null; None if it names none.

        Bounds, patterns and formats are not looked at.
        """
        return self._any(self._parts, value, {})

    def _any(self, schemas: Sequence[object], value: str | None, known: _Known) -> bool | None:
        verdicts = {self._allows(schema, value, known) for schema in schemas}
        return True if True in verdicts else None if None in verdicts or not verdicts else False

    def _allows(self, schema: object, value: str | None, known: _Known) -> bool | None:
        if schema is False:
            return False
        schema = mapping(schema)
        verdicts: list[bool | None] = []
        if (kinds := schema.get("type")) is not None:
            kind = "null" if value is None else "string"
            is_nullable = value is None and schema.get("nullable") is True
            verdicts.append(kind in (kinds if isinstance(kinds, list) else [kinds]) or is_nullable)
        elif any(key in schema for key in ("pattern", "minLength", "maxLength")):
            verdicts.append(value is not None)
        if "enum" in schema:
            verdicts.append(value in items(schema["enum"]))
        if "const" in schema:
            verdicts.append(value == schema["const"])
        if isinstance(place := schema.get("$ref"), str):
            if place not in known:  # a reference in a circle says nothing
                known[place] = None
                known[place] = self._allows(self._referred(place), value, known)
            verdicts.append(known[place])
        verdicts += (self._allows(part, value, known) for part in items(schema.get("allOf")))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                verdicts.append(self._any(items(schema[key]), value, known))
        return False if False in verdicts else True if True in verdicts else None

    def _referred(self, place: object) -> object:
        """What a reference within the schema leads to; None if it leads nowhere."""
        if not isinstance(place, str) or not place.startswith("#"):
            return None
        found = self._root
        for step in unquote(place[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            listed = items(found)
            is_index = key.isdecimal() and int(key) < len(listed)
            found = listed[int(key)] if is_index else mapping(found).get(key)
        return found


_NO_SCHEMA = Schema((), None)
