"""Schemas so deep that the library would overflow the stack are refused before it reads them."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import UsageError
from decoding.constraint.checks import depth
from decoding.constraint.compiled_grammar import compiled
from decoding.constraint.grammar import Grammar, GrammarKind

Json = Any


def named(place: int) -> Json:
    return {"$ref": f"#/$defs/{place}"}


def chain(link: Callable[[Json], Json], length: int = 2000) -> Json:
    """A schema of so many definitions, each of which leads to the next one."""
    definitions = {str(place): link(named(place + 1)) for place in range(length)}
    return {"$defs": {**definitions, str(length): {"type": "integer"}}, **named(0)}


def renamed(schema: Json, name: Callable[[str], Json]) -> Json:
    """A schema whose references are written in another way."""
    if isinstance(schema, list):
        return [renamed(item, name) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: name(item.rpartition("/")[2]) if key == "$ref" else renamed(item, name)
        for key, item in schema.items()
    }


def in_property(part: Json) -> Json:
    return {"type": "object", "properties": {"a": part}, "required": ["a"]}


def anchored(length: int = 2000) -> Json:
    definitions = {
        str(place): {"$anchor": f"a{place}", "items": {"$ref": f"#a{place + 1}"}}
        for place in range(length)
    }
    return {"$defs": {**definitions, str(length): {"$anchor": f"a{length}"}}, "$ref": "#a0"}


@pytest.mark.parametrize(
    "schema",
    [
        chain(in_property),
        chain(lambda part: {"type": "array", "items": part}),
        chain(lambda part: {"anyOf": [{"type": "string"}, part]}),
        chain(lambda part: {"allOf": [part]}),
        chain(lambda part: {"type": "object", "additionalProperties": part}),
        renamed(chain(in_property), lambda name: f"#/%24defs/{name}"),
        {"$id": "http://a/", **renamed(chain(in_property), lambda name: f"http://a/#/$defs/{name}")},
        {"items": {"$id": "http://a/", **chain(in_property)}},
        anchored(),
    ],
)  # fmt: skip
def test_what_would_overflow_the_stack_is_refused(schema: Json) -> None:
    with pytest.raises(UsageError, match="nested too deeply"):
        compiled(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema)))


@pytest.mark.slow
def test_many_rules_in_gbnf_are_refused_too() -> None:
    rules = [f'r{place} ::= "b" r{place + 1}' for place in range(5000)]
    text = "\n".join(["root ::= r0", *rules, 'r5000 ::= "a"'])
    with pytest.raises(UsageError, match="rules"):
        compiled(Grammar(GrammarKind.GBNF, text))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, 1),
        (in_property(in_property({})), 5),
        ({"$defs": {"a": True}, "items": {"$ref": "#/$defs/a"}}, 2),
        ({"properties": {"next": {"$ref": "#"}}}, 3),
        (chain(in_property, 3), 12),
        ({"enum": ["a"] * 1000}, 2),
        ({"properties": {str(place): {} for place in range(1000)}}, 3),
    ],
)
def test_a_depth_counts_what_lies_within_each_other(schema: Json, expected: int) -> None:
    assert depth(schema) == expected


@given(st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=6))
def test_no_way_through_the_references_is_longer(leads: Sequence[Sequence[int]]) -> None:
    definitions = [[named(min(other, len(leads) - 1)) for other in others] for others in leads]
    schema: Mapping[str, Json] = {
        "$defs": {str(n): {"anyOf": d} for n, d in enumerate(definitions)}
    }

    def longest(place: int, seen: frozenset[int]) -> int:
        after = {min(other, len(leads) - 1) for other in leads[place]} - seen - {place}
        below = max((longest(other, seen | {place}) for other in after), default=0)
        return 3 + below if leads[place] else 2

    assert depth(schema) >= 2 + max(longest(place, frozenset()) for place in range(len(leads)))
