"""How deep a Lark grammar is once the rules that it names are followed.

The library follows them by recursion; hundreds in a row would end the process, without an error.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from decoding.constraint.checks.longest_way import longest_way
from decoding.constraint.checks.schema_depth import depth

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
