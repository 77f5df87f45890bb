"""Reads JSON that a model wrote, in which numbers may be none that JSON can hold."""

import json
import math
from typing import NoReturn, cast


def loads_finite(text: str) -> object:
    """The value of a text; a number that is none, or too large to be sent on, is null.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_float=_finite_number, parse_constant=_null)


def finite(value: object) -> object:
    """A value with null in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [finite(item) for item in cast("list[object]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_strictly(text: str) -> None:
    """Check that a text is JSON, in which there is no NaN.

    Raises:
        ValueError: it is not.
        RecursionError: it is nested too deeply.
    """
    json.loads(text, parse_constant=_refuse)


def _finite_number(text: str) -> object:
    return finite(float(text))


def _null(_name: str) -> None:
    """Of NaN and Infinity, which only Python writes."""


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
