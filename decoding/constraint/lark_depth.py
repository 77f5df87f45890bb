"""What can make a Lark grammar deep, once the rules that it names are followed."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

_RULE = re.compile(r"^[ \t]*[?!]?[^\W\d]\w*[ \t]*[\[:.{]", re.MULTILINE)
"""The start of a line that defines a rule or a terminal."""

_SCHEMA = re.compile(r"%json\s*")


def most_rules(text: str) -> int:
    """Rules and terminals that a grammar defines at most: none can lead through more of them."""
    return sum(1 for _ in _RULE.finditer(text))


def schemas(text: str) -> Iterator[Mapping[str, Any]]:
    """The JSON schemas within a grammar, as far as they can be read.

    Raises:
        RecursionError: one is nested too deeply.
    """
    decoder = json.JSONDecoder()
    for found in _SCHEMA.finditer(text):
        with suppress(ValueError):  # the library will tell, unless it stands in a string
            schema = decoder.raw_decode(text, found.end())[0]
            if isinstance(schema, dict):
                yield cast("dict[str, Any]", schema)
