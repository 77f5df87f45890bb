"""JSON schemas as grammars, and what is checked of them before: depth."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import UsageError
from decoding.constraint.checks import depth, lark_depth
from decoding.constraint.compiled_grammar import compiled
from decoding.constraint.grammar import Grammar, GrammarError, GrammarKind
from tests.decoding.constraint.test_schema_campaign import STOP, VOCABULARY


def allows(schema: str, text: str) -> bool:
    grammar = compiled(Grammar(GrammarKind.JSON_SCHEMA, schema))
    tokens = [*text.encode(), STOP]
    return VOCABULARY.constraint(grammar).count_allowed((), tokens) == len(tokens)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ('"exclusiveMinimum": 0, "exclusiveMaximum": 0.5', "0.1 0.49", "0 0.0 0.5 0.50 -0.1 1"),
        ('"exclusiveMinimum": -0.5, "exclusiveMaximum": 0', "-0.1", "0 -0 0.1 -0.5 0.0"),
        ('"exclusiveMinimum": 0.5, "exclusiveMaximum": 1', "0.6 0.999", "1 0.5 1.0 2"),
        ('"exclusiveMinimum": -1, "exclusiveMaximum": -0.5', "-0.6 -0.99", "-1 -0.5 0 -1.0"),
        ('"minimum": 0.1, "maximum": 0.1', "0.1", "0.2 0 0.10 0.11"),
        ('"minimum": 2, "exclusiveMinimum": true', "3 2.5", "2 2.0"),
        ('"const": 9007199254740993', "9007199254740993", "9007199254740992 9007199254740994"),
        ('"enum": [18446744073709551615, 1]', "18446744073709551615 1", "18446744073709551616"),
        ('"const": 1e20', "100000000000000000000", "1 1e20"),
        ('"maximum": 1e20', "100000000000000000000 -1 0", "100000000000000000001"),
        (
            '"minimum": -9223372036854775808, "maximum": 9223372036854775807, "type": "integer"',
            "-9223372036854775808 9223372036854775807 0 -1",
            "9223372036854775808 -9223372036854775809 1.5",
        ),
        (
            '"minimum": -9007199254740991, "maximum": 9007199254740991, "multipleOf": 5',
            "-9007199254740990 9007199254740990 0 25",
            "9007199254740995 3 9007199254740991",
        ),
        ('"minimum": 9007199254740993, "type": "integer"', "9007199254740993", "9007199254740992"),
        ('"minimum": 0.3, "multipleOf": 0.1, "maximum": 0.7', "0.3 0.7 0.6", "0.2 0.8 0.35"),
        ('"type": "integer", "multipleOf": 1.5, "maximum": 6, "minimum": 0', "0 3 6", "1.5 2"),
    ],
)  # fmt: skip
def test_numbers_are_exact(schema: str, right: str, wrong: str) -> None:
    whole = f'{{"type": "number", {schema}}}' if "type" not in schema else f"{{{schema}}}"
    assert [text for text in right.split() if not allows(whole, text)] == []
    assert [text for text in wrong.split() if allows(whole, text)] == []


A = '{"properties": {"a": {"type": "integer"}}, "type": "object"}'
PATTERNS = (
    '{"type": "object", "patternProperties": {"^x": {"type": "null"}}, "properties": {"a": true}}'
)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (A, ['{"a": 1}', '{"b": "x"}', '{"a": 1, "\\n": 2}'], [
            '{"\\u0061": "x"}', '{"a": 1, "a": "x"}', '{"a": 1, "\\u0061": "x"}', '{"\\/": 1}'
        ]),
        ('{"type": "object", "properties": {"\\n": {"type": "null"}}}', ['{"\\n": null}'],
         ['{"\\n": 1}', '{"\\u000a": 1}', '{"\\u000A": 1}']),
        ('{"type": "object", "required": ["k"], "additionalProperties": {"type": "null"}}',
         ['{"k": null, "l": null}'], ['{"k": null, "k": null}', '{"l": null}']),
        ('{"type": "object", "minProperties": 1}', ['{"k": 1}', '{"k": 1, "l": 2}'], ["{}"]),
        (PATTERNS, ['{"a": 1, "x": null}'], ['{"a": 1, "x": 1}', '{"x": null, "a": 1}']),
        ('{"type": "string"}', ['"\\u0000\\u007f"', '"é\\"\\\\"'], ['"\n"', '"\\u0061"']),
    ],
)  # fmt: skip
def test_a_name_is_written_in_one_way_and_once(
    schema: str, right: list[str], wrong: list[str]
) -> None:
    assert [text for text in right if not allows(schema, text)] == []
    assert [text for text in wrong if allows(schema, text)] == []


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object", "propertyNames": {"type": "string"}}, '{"any": 1}'),
        ({"type": "array", "uniqueItems": False}, "[1, 1]"),
        ({"type": "array", "uniqueItems": True, "maxItems": 1}, "[1]"),
        ({"type": "object", "dependentRequired": {}, "dependentSchemas": {}}, "{}"),
        ({"type": "object", "unevaluatedProperties": True, "not": False}, "{}"),
        *(
            ({"type": "string", "format": name}, '"any, \\\\"')
            for name in ("path", "password", "binary", "regex", "uri-reference", "byte", "color")
        ),
        ({"type": "integer", "format": "int64"}, "12"),
        ({"enum": ["ab", "ac", "b", 3], "pattern": "^a"}, "3"),
        ({"enum": ["ab", "ac", "b", 3], "pattern": "^a", "maxLength": 3}, '"ac"'),
        ({"type": "object", "propertyNames": {"enum": ["k"]}}, '{"k": 1}'),
        ({"type": "object", "propertyNames": {"pattern": "^k"}}, '{"kk": 1, "k": 2}'),
        ({"oneOf": [{"type": "string", "pattern": "^a"}, {"enum": ["b", 3]}]}, '"b"'),
        ({"$ref": "#/$defs/a", "properties": {"n": {"$ref": "#"}}, "$defs": {"a": {"minimum": 0}}},
         '{"n": {}}'),
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_asks_for_nothing_or_can_be_kept_is_not_refused(
    schema: dict[str, object], text: str
) -> None:
    assert allows(json.dumps(schema), text)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('{"type": "object", "x-guidance": {"lenient": true}, "not": {}}', "not, x-guidance"),
        ('{"properties": {"a": {"x-guidance": {}}}}', "x-guidance"),
        ('{"type": "object", "minProperties": 2}', "minProperties"),  # names may be the same
        ('{"oneOf": [{"type": "integer"}, {"minimum": 3}]}', "oneOf"),
        ('{"oneOf": [{"type": "string", "maxLength": 0, "format": "time"}, {}]}', "oneOf"),
        ('{"maximum": 1e1001}', "400 digits"),
        ('{"maximum": ' + "9" * 401 + "}", "400 digits"),
        (json.dumps({"allOf": [{"anyOf": [{"minLength": n}, {"title": ""}]} for n in range(20)]}),
         "too many parts"),
        ('{"maximum": NaN}', "NaN"),
        ('{"const": -Infinity}', "Infinity"),
        ('{"type": "object", "properties": 5}', "properties"),
        ('{"minLength": -1}', "minLength"),
        ('{"$ref": "#/nowhere"}', "nowhere"),
        ('{"propertyNames": {"not": {}}}', "not"),
        ('{"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}', "nothing can match"),
        ('{"anyOf": [{"$ref": "#"}, false]}', "nothing can match"),
        ('{"type": "object", "minProperties": 2, "maxProperties": 1, "properties": {"a": true}}',
         "nothing can match"),
        ('{"const": "\\ud800"}', "character"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_by_name(schema: str, why: str) -> None:
    with pytest.raises(GrammarError, match=why):
        compiled(Grammar(GrammarKind.JSON_SCHEMA, schema))


def test_where_a_way_through_a_choice_comes_back_to_it_that_way_is_none() -> None:
    schema = '{"anyOf": [{"type": "null"}, {"$ref": "#"}, {"allOf": [{"$ref": "#"}]}]}'
    assert allows(schema, "null")
    assert not allows(schema, "1")


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


@pytest.mark.parametrize(
    ("grammar", "expected"),
    [
        ("", 0),
        ('start: "a"', 1),
        ('start: one two\none: "a"\ntwo: "b"', 2),
        ('start: one\none: TWO\nTWO: "b"', 3),
        ('start: one\n?one: ("a" | ("b" "c")) (two)\n!two: "b"', 1 + 3 + 1),
        ('start: one\n | "a"\none: "x" start', 2),
        ('start: one\none: "x" one two | ""\ntwo: one | three\nthree: "y"', 4),
        ('start: one\n\n// two\none[stop="x"]: "a"', 1 + 2),
        ('start: %json {"type": "string"}', 1 + 1),
        ('start: %json {"properties": {"a": {"type": "string"}}}', 1 + 3),
    ],
)
def test_rules_and_groups_within_each_other_count(grammar: str, expected: int) -> None:
    assert lark_depth(grammar) == expected


SELF: dict[str, Any] = {"$ref": "#"}


def of(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


@pytest.mark.parametrize(
    "schema",
    [
        SELF,
        of({"a": of({"b": SELF}, "b")}, "a"),
        {"type": "array", "prefixItems": [{}, SELF], "minItems": 2},
        {"anyOf": [of({"a": SELF}, "a"), {"type": "array", "items": SELF, "minItems": 1}]},
        {"allOf": [{"type": "object"}, of({"a": SELF}, "a")]},
        of(
            {"x": {"$ref": "#/$defs/x"}}, "x",
            **{"$defs": {"x": of({"y": {"$ref": "#/$defs/y"}}, "y"),
                         "y": of({"x": {"$ref": "#/$defs/x"}}, "x")}},
        ),
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_only_a_value_without_end_matches_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(GrammarError, match="without end"):
        compiled(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema)))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"properties": {"a": SELF}, "required": ["a"]}, "1"),
        (of({"a": {"anyOf": [{"type": "null"}, SELF]}}, "a"), '{"a": {"a": null}}'),
        (of({"a": {"type": "array", "items": SELF}}, "a"), '{"a": [{"a": []}]}'),
        ({"type": ["object", "null"], "properties": {"a": SELF}, "required": ["a"]},
         '{"a": {"a": null}}'),
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_ends_somewhere_is_followed_there(schema: dict[str, Any], text: str) -> None:
    assert allows(json.dumps(schema), text)
