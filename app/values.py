"""Reads JSON of others, such as servers, models and files, which may have any form."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

_MOST_COUNT = 1 << 40


def parsed(text: str) -> Any:
    """The value of a JSON text; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def mapping(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> Sequence[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else ()


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def count_of(value: object) -> int | None:
    """A number of things; None if it is none that can be."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_COUNT
    return cast("int", value) if is_count else None


def part_of(value: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The object at a path of names with dots between; {} if there is none."""
    for name in path.split("."):
        value = mapping(value.get(name))
    return value
