"""How deep a schema is once its references are followed.

The library follows them by recursion; thousands in a row would end the process, without an error.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from decoding.constraint.checks.json_pointer import pointed_at
from decoding.constraint.checks.longest_way import longest_way

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_BASES = ("$id", "id")
"""What changes the meaning of references within a part."""

_MOST_PARTS = 20_000
"""Objects and arrays that are looked at, in about 0.2 s; the library takes fewer properties."""


def depth(schema: Mapping[str, Any]) -> int:
    """The most objects and arrays of a schema that can lie within each other, or more than that.

    A reference leads to the part that it names, and to anywhere if that is not plain to see. Parts
    that lead to each other all count, in whichever order they are followed.
    """
    parts = list(islice(_parts(schema), _MOST_PARTS + 1))
    if len(parts) > _MOST_PARTS:
        return len(parts)
    edges = _edges(parts)
    return longest_way(edges, [1] * len(edges))


def _edges(parts: Sequence[object]) -> Sequence[Sequence[int]]:
    """The objects and arrays that each leads to, by their numbers; the schema itself is 0."""
    numbers = {id(part): number for number, part in enumerate(parts)}
    inner = map(_fields, parts[1:])
    is_plain = not any(isinstance(fields.get(key), str) for fields in inner for key in _BASES)
    targets: dict[str, int | None] = {}

    def target(reference: str) -> int | None:
        if reference not in targets:
            found = pointed_at(parts[0], reference) if is_plain and "%" not in reference else None
            targets[reference] = None if isinstance(found, bool) else numbers.get(id(found), 0)
        return targets[reference]

    def led_to(part: object) -> Sequence[int]:
        named = map(target, _references(part))
        return [
            *(numbers[id(inner)] for inner in _inside(part)),
            *(n for n in named if n is not None),
        ]

    return [led_to(part) for part in parts]


def _parts(schema: object) -> Iterator[object]:
    """All objects and arrays in a schema, itself first."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += _inside(part)


def _inside(part: object) -> list[object]:
    values = cast("list[object]", part) if isinstance(part, list) else list(_fields(part).values())
    return [value for value in values if isinstance(value, dict | list)]


def _references(part: object) -> Iterator[str]:
    for key in _REFERENCES:
        if isinstance(reference := _fields(part).get(key), str):
            yield reference


def _fields(part: object) -> dict[str, object]:
    return cast("dict[str, object]", part) if isinstance(part, dict) else {}
