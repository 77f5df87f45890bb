"""Checks the body of a request against the fields that a dialect knows."""

import math
from typing import Annotated, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError, from_json

from app.serve.limits import MOST_FIELDS, MOST_ITEMS, MOST_VALUES
from app.serve.refusal import invalid
from app.serve.wrong_field import MOST_SHOWN, wrong_field

_Body = TypeVar("_Body", bound=BaseModel)
_Item = TypeVar("_Item")

Items = Annotated[list[_Item], Field(max_length=MOST_ITEMS, fail_fast=True)]
"""A list of bounded length whose first wrong item ends the check: each error costs microseconds."""

_MOST_FIELDS = {"most": MOST_FIELDS}


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
        raise wrong_field(error, value) from None
    except RecursionError:
        raise invalid("the body is nested too deeply") from None


def _json(body: bytes) -> object:
    """The value of a JSON text whose numbers are finite."""
    if _values(body) > MOST_VALUES:
        raise invalid(f"the body has more than {MOST_VALUES:,} values")
    try:
        value: object = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(f"the body is not valid JSON: {error}"[:MOST_SHOWN]) from None
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
