"""Checks the body of a request against the fields that a dialect knows."""

import re
from typing import TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from app.serve.refusal import RefusedError, invalid

_Body = TypeVar("_Body", bound=BaseModel)

_NAME = re.compile(r"-?[a-z0-9_]+")
_TYPES = ("str", "int", "float", "bool")
_MOST_SHOWN = 200
"""Longest message about one field; it may repeat what was sent."""


class _Part(BaseModel):
    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        """Clients write null for what they do not ask for, also where they do not have to."""
        if not isinstance(value, dict):
            return value
        items = cast("dict[str, object]", value).items()
        return {name: item for name, item in items if item is not None}


class Fields(_Part):
    """Base of what comes in: numbers are finite, and unknown fields are refused by name.

    A dialect declares the harmless fields that it ignores.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class Lenient(_Part):
    """Base of parts whose unknown fields change no answer and are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, frozen=True)


def read_body(kind: type[_Body], body: bytes) -> _Body:
    """Read a body.

    Raises:
        RefusedError: it is not JSON, or a field is unknown, of the wrong type or out of range.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _refused(error) from None
    except RecursionError:
        raise invalid("the body is nested too deeply") from None


def _refused(error: ValidationError) -> RefusedError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"] if _is_place(part))[:_MOST_SHOWN]
    if first["type"] == "json_invalid":
        return invalid(f"the body is not valid JSON: {first['msg']}"[:_MOST_SHOWN])
    if first["type"] == "extra_forbidden":
        return invalid(f"{place} is not supported", place)
    return invalid(f"{place}: {first['msg']}"[:_MOST_SHOWN] if place else first["msg"], place)


def _is_place(part: int | str) -> bool:
    """Whether a part of an error's place was sent, and is not the name of a type that was tried."""
    return isinstance(part, int) or bool(_NAME.fullmatch(part) and part not in _TYPES)
