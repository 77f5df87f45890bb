"""Checks the body of a request against the fields that a dialect knows."""

import math
from typing import Annotated, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError, from_json

from app.serve.limits import MOST_FIELDS, MOST_ITEMS, MOST_VALUES
from app.serve.refusal import RefusedError, invalid

_Body = TypeVar("_Body", bound=BaseModel)
_Item = TypeVar("_Item")

Items = Annotated[list[_Item], Field(max_length=MOST_ITEMS, fail_fast=True)]
"""A list of bounded length whose first wrong item ends the check: each error costs microseconds."""

_MOST_FIELDS = {"most": MOST_FIELDS}
_OBJECT, _LIST = "must be an object", "must be a list"
_MESSAGES = {
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dict_type": _OBJECT,
    "list_type": _LIST,
}
"""Messages in words of JSON; pydantic's own are in words of Python, and name our classes."""
_MOST_SHOWN = 200
"""Longest message about one field; it may repeat what was sent."""


class _Part(BaseModel):
    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        """Clients write null for what they do not ask for, also where they do not have to."""
        if not isinstance(value, dict):
            return value
        fields = cast("dict[str, object]", value)
        if len(fields) > MOST_FIELDS:  # before pydantic builds an error for each
            raise PydanticCustomError("too_many_fields", "more than {most} fields", _MOST_FIELDS)
        return {name: item for name, item in fields.items() if item is not None}


class Fields(_Part):
    """Base of what comes in: types are exact, numbers finite, and unknown fields refused by name.

    A dialect declares the harmless fields that it ignores.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Lenient(_Part):
    """Base of parts whose unknown fields change no answer and are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, frozen=True)


def read_body(kind: type[_Body], body: bytes) -> _Body:
    """Read a body.

    What a check costs is bounded before it begins, as other requests and replies wait for it.

    Raises:
        RefusedError: it is not JSON, has too many values, or a field is unknown, of the wrong type
            or out of range.
    """
    value = _json(body)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise _refused(error, value) from None
    except RecursionError:
        raise invalid("the body is nested too deeply") from None


def _json(body: bytes) -> object:
    """The value of a JSON text whose numbers are finite."""
    if _values(body) > MOST_VALUES:
        raise invalid(f"the body has more than {MOST_VALUES:,} values")
    try:
        value: object = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(f"the body is not valid JSON: {error}"[:_MOST_SHOWN]) from None
    if not _is_finite(value):
        raise invalid("the body is not valid JSON: a number is too large")
    return value


def _values(body: bytes) -> int:
    """About how many values a JSON text has, by its marks outside of strings.

    What is escaped in a string is removed first, so that each quote begins or ends one.
    """
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if (quotes := bare.count(b'"')) > 4 * MOST_VALUES:  # two for each key and two for each value
        return quotes
    marks = b"".join(bare.split(b'"')[::2])
    return sum(marks.count(mark) for mark in (b",", b"[", b"{"))


def _is_finite(value: object) -> bool:
    """Whether all numbers are; parsing makes an infinite one of 1e999."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return False
        if isinstance(item, dict):
            waiting += cast("dict[str, object]", item).values()
        elif isinstance(item, list):
            waiting += cast("list[object]", item)
    return True


def _refused(error: ValidationError, body: object) -> RefusedError:
    # The bounds above keep the number of errors small; pydantic has no way to ask for the first.
    first = error.errors(include_url=False, include_input=False)[0]
    place = _place(first["loc"], body, is_missing=first["type"] == "missing")
    if first["type"] == "extra_forbidden":
        return invalid(f"{place} is not supported", place)
    message = _message(first)
    if not place:
        return invalid(f"the body {message}" if message in _MESSAGES.values() else message)
    return invalid(f"{place}: {message}"[:_MOST_SHOWN], place)


def _message(error: ErrorDetails) -> str:
    """What is wrong with a value."""
    if error["type"] == "too_short":
        least = error.get("ctx", {}).get("min_length", 1)
        return "must have at least one item" if least == 1 else f"must have at least {least} items"
    return _MESSAGES.get(error["type"], error["msg"])


def _place(parts: tuple[int | str, ...], body: object, *, is_missing: bool) -> str:
    """Where an error is; the names of types that were tried, which no body has, are left out."""
    place: list[str] = []
    at = body
    for number, part in enumerate(parts, start=1):
        if isinstance(at, dict) and part in at:
            at = cast("dict[object, object]", at)[part]
        elif isinstance(at, list) and isinstance(part, int):
            items = cast("list[object]", at)
            at = items[part] if part < len(items) else None
        elif not (is_missing and number == len(parts)):
            continue
        place.append(str(part))
    return ".".join(place)[:_MOST_SHOWN]
