"""Schemas that only an endless value would match are found, and no others."""

import json
from typing import Any

import pytest

from backends.base import UsageError
from decoding.constraint.checks import is_endless

SELF: dict[str, Any] = {"$ref": "#"}


def of(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


@pytest.mark.parametrize(
    "schema",
    [
        SELF,
        of({"a": SELF}, "a"),
        of({"a": of({"b": SELF}, "b")}, "a"),
        {"type": "array", "items": SELF, "minItems": 1},
        {"type": "array", "prefixItems": [{}, SELF], "minItems": 2},
        {"anyOf": [of({"a": SELF}, "a"), {"type": "array", "items": SELF, "minItems": 1}]},
        {"allOf": [{"type": "object"}, of({"a": SELF}, "a")]},
        of({"x": {"$ref": "#/$defs/x"}}, "x", **{"$defs": {"x": {"$ref": "#/$defs/x"}}}),
        of(
            {"x": {"$ref": "#/$defs/x"}}, "x",
            **{"$defs": {"x": of({"y": {"$ref": "#/$defs/y"}}, "y"),
                         "y": of({"x": {"$ref": "#/$defs/x"}}, "x")}},
        ),
    ],
    ids=json.dumps,
)  # fmt: skip
def test_it_is_endless(schema: dict[str, Any]) -> None:
    assert is_endless(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {"a": SELF}, "required": ["a"]},  # a number matches
        of({"a": SELF}),
        of({"a": SELF}, "b"),
        of({"a": {"anyOf": [{"type": "null"}, SELF]}}, "a"),
        of({"a": {"type": "array", "items": SELF}}, "a"),
        {"type": "array", "prefixItems": [{}, SELF], "minItems": 1},
        {"type": ["object", "null"], "properties": {"a": SELF}, "required": ["a"]},
        of({"x": {"$ref": "#/$defs/nothing"}}, "x"),
        of({"x": {"$ref": "#anchor"}}, "x"),
        of({"x": {"$ref": "#/$defs/a~1b"}}, "x", **{"$defs": {"a/b": {"type": "string"}}}),
        of({"x": {"$ref": "#/anyOf/0"}}, "x", anyOf=[{}]),
    ],
    ids=json.dumps,
)
def test_it_is_not(schema: dict[str, Any]) -> None:
    assert not is_endless(schema)


def test_a_chain_of_references_is_followed_to_its_end() -> None:
    links = {f"n{k}": of({"next": {"$ref": f"#/$defs/n{k + 1}"}}, "next") for k in range(100)}
    assert not is_endless({"$ref": "#/$defs/n0", "$defs": {**links, "n100": {"type": "null"}}})
    assert is_endless({"$ref": "#/$defs/n0", "$defs": {**links, "n100": {"$ref": "#/$defs/n0"}}})


def test_one_that_is_too_large_to_search_counts_as_finite() -> None:
    links = {f"n{k}": of({"next": {"$ref": f"#/$defs/n{k + 1}"}}, "next") for k in range(5000)}
    assert not is_endless({"$ref": "#/$defs/n0", "$defs": links})
    assert not is_endless({"$ref": "#", "$defs": links})  # it is endless, but not looked at whole


def test_it_is_refused_before_a_model_is_loaded() -> None:
    pytest.importorskip("llguidance")
    from decoding.constraint.compiled_grammar import compiled
    from decoding.constraint.grammar import Grammar, GrammarKind

    with pytest.raises(UsageError, match="refers to itself without end"):
        compiled(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(of({"a": SELF}, "a"))))
