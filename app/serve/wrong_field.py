"""Names the field that is wrong in a body, and what it should be, in words of JSON."""

import re
from collections.abc import Sequence
from typing import cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.serve.refusal import RefusedError, invalid

_WANTED = {
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dict_type": "an object",
    "list_type": "a list",
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
}
"""Types in words of JSON; pydantic's own are in words of Python, and name our classes."""
_OF_PYDANTIC = re.compile(r"^\w+ should ")
MOST_SHOWN = 200
"""Longest message about one field; it may repeat what was sent."""


def wrong_field(error: ValidationError, body: object) -> RefusedError:
    """The refusal of a body whose check found errors: it tells the first."""
    # What is read is bounded, so errors are few; pydantic has no way to ask for the first.
    errors = error.errors(include_url=False, include_input=False)
    places = [_place(one["loc"], body, is_missing=one["type"] == "missing") for one in errors]
    # Where several types are possible, what is wrong within one of them tells most.
    first = places[0]
    inner = max((place for place in places if place[: len(first)] == first), key=len)
    found = [one for one, place in zip(errors, places, strict=True) if place == inner]
    place = ".".join(inner)[:MOST_SHOWN]
    if found[0]["type"] == "extra_forbidden":
        return invalid(f"{place} is not supported", place)
    message = _message(found)
    if not place:
        return invalid(message if found[0]["type"] == "too_many_fields" else f"the body {message}")
    return invalid(f"{place}: {message}"[:MOST_SHOWN], place)


def _message(errors: Sequence[ErrorDetails]) -> str:
    """What is wrong with a value that may be of several types, each with its error."""
    wanted = [_wanted(error) for error in errors]
    if all(wanted):
        return f"must be {' or '.join(dict.fromkeys(wanted))}"
    error = errors[wanted.index("")]  # its type is right
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "too_short":
        least = error.get("ctx", {}).get("min_length", 1)
        return "must have at least one item" if least == 1 else f"must have at least {least} items"
    message = _OF_PYDANTIC.sub("must ", error["msg"])
    return message.partition(" after validation")[0]


def _wanted(error: ErrorDetails) -> str:
    """What a value should have been; "" if the error is another."""
    if error["type"] == "literal_error":
        expected = str(error.get("ctx", {}).get("expected", ""))
        return {"True": "true", "False": "false"}.get(expected, expected)
    return _WANTED.get(error["type"], "")


def _place(parts: tuple[int | str, ...], body: object, *, is_missing: bool) -> tuple[str, ...]:
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
    return tuple(place)
