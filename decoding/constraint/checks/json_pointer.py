"""Finds the part of a JSON value that a reference names."""

from typing import cast


def pointed_at(value: object, reference: str) -> object:
    """The part that a local JSON pointer, such as #/$defs/a, names; None if there is none."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    part = value
    for name in reference.split("/")[1:]:
        part = _member(part, name.replace("~1", "/").replace("~0", "~"))
    return part


def _member(value: object, key: str) -> object:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).get(key)
    items = cast("list[object]", value) if isinstance(value, list) else []
    is_place = key.isascii() and key.isdecimal() and len(key) <= len(str(len(items)))
    return items[int(key)] if is_place and int(key) < len(items) else None
