"""What is checked of a grammar before it is compiled, as some would end the process."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, cast


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


def longest_way(edges: Sequence[Sequence[int]], weights: Sequence[int]) -> int:
    """The most that the nodes on a way from node 0 weigh together, or more than that.

    edges: the nodes that each leads to. Those that lead to each other all count, in whichever order
    they are followed.
    """
    longest = [0] * len(edges)
    for group in groups(edges):
        beyond = max((longest[other] for node in group for other in edges[node]), default=0)
        weight = sum(weights[node] for node in group)
        for node in group:
            longest[node] = weight + beyond
    return longest[0]


def groups(edges: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Nodes that lead to each other, in groups; each group after those that it leads to.

    Tarjan's algorithm, without recursion.
    """
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    waiting: set[int] = set()
    path: list[tuple[int, Iterator[int]]] = []

    def enter(node: int) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        waiting.add(node)
        path.append((node, iter(edges[node])))

    enter(0)
    while path:
        node, following = path[-1]
        for other in following:
            if other not in order:
                enter(other)
                break
            if other in waiting:
                lowest[node] = min(lowest[node], order[other])
        else:
            path.pop()
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
            if lowest[node] == order[node]:
                group = [stack.pop()]
                while group[-1] != node:
                    group.append(stack.pop())
                waiting.difference_update(group)
                yield group


# How deep a schema is once its references are followed.
#
# The library follows them by recursion; thousands in a row would end the process, without an error.

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


# How deep a Lark grammar is once the rules that it names are followed.
#
# The library follows them by recursion; hundreds in a row would end the process, without an error.

_RULE = re.compile(r"^[ \t]*[?!]?([^\W\d]\w*)[ \t]*[\[:.{]", re.MULTILINE)
"""The start of a line that defines a rule or a terminal."""

_NAME = re.compile(r"[^\W\d]\w*")
_BRACKET = re.compile(r"[(\[)\]]")
_SCHEMA = re.compile(r"%json\s*(?=\{)")


def lark_depth(text: str) -> int:
    """The most rules, groups and parts of schemas that can lie within each other, or more."""
    starts = list(_RULE.finditer(text))
    ends = [*(start.start() for start in starts[1:]), len(text)]
    bodies = [text[start.end(1) : end] for start, end in zip(starts, ends, strict=False)]
    numbers = {start[1]: number for number, start in enumerate(starts, 1)}
    named = (set(_NAME.findall(body)) & numbers.keys() for body in bodies)
    edges = [range(1, len(bodies) + 1), *([numbers[name] for name in names] for names in named)]
    return longest_way(edges, [0, *map(_own_depth, bodies)])


def schemas(text: str) -> Iterator[Mapping[str, Any]]:
    """The JSON schemas within a grammar, as far as they can be read.

    Raises:
        RecursionError: one is nested too deeply.
    """
    decoder = json.JSONDecoder()
    for found in _SCHEMA.finditer(text):
        with suppress(ValueError):  # the library will tell, unless it stands in a string
            yield cast("dict[str, Any]", decoder.raw_decode(text, found.end())[0])


def _own_depth(body: str) -> int:
    """Depth of a rule itself; brackets within its texts count as groups."""
    level = deepest = 0
    for bracket in _BRACKET.finditer(body):
        level = level + 1 if bracket[0] in "([" else max(level - 1, 0)
        deepest = max(deepest, level)
    return 1 + deepest + max(map(depth, schemas(body)), default=0)
