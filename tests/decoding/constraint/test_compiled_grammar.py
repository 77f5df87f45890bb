"""Grammars that cannot be used are refused by name before any model is needed."""

import json

import pytest

from backends.base import UsageError
from decoding.constraint.compiled_grammar import compiled
from decoding.constraint.grammar import Grammar, GrammarKind

SCHEMA, GBNF = GrammarKind.JSON_SCHEMA, GrammarKind.GBNF


def nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + "{}" + "}" * depth


def referring(times: int) -> str:
    """A schema in which so many definitions refer to the next."""
    chain = {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(times)}
    return json.dumps({"$ref": "#/$defs/0", "$defs": {**chain, str(times): {"type": "string"}}})


def rules(count: int, last: str = '"b"', name: str = "rule", groups: int = 0) -> str:
    """A Lark grammar in which so many rules lead to the next, and the last one to something."""
    before, after = '("x" | ' * groups, ")" * groups
    chain = [f'{name}{n}: "a" {before}{name}{n + 1}{after}' for n in range(count)]
    return "\n".join([f"start: {name}0", *chain, f"{name}{count}: {last}"])


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (SCHEMA, "", "not JSON"),
        (SCHEMA, "[1]", "neither an object nor a boolean"),
        (SCHEMA, '{"type": "text"}', "Invalid type: text"),
        (SCHEMA, '{"type": "array", "uniqueItems": true}', "uniqueItems"),
        (SCHEMA, '{"not": {"type": "string"}}', "not"),
        (SCHEMA, "false", "nothing can match"),
        (SCHEMA, '{"minLength": 5, "maxLength": 3, "type": "string"}', "[Uu]nsatisfiable"),
        (SCHEMA, '{"$ref": "http://example.com/schema"}', "example.com"),
        (SCHEMA, nested(300), "recursion|deep"),
        (SCHEMA, nested(30_000), "recursion|deep"),
        (SCHEMA, '{"type": "string", "pattern": "("}', "unclosed"),
        (SCHEMA, json.dumps({"const": "x" * (1 << 20)}), "too long"),
        (GrammarKind.REGEX, "(", "unclosed"),
        (GrammarKind.REGEX, "(?=a)b", "look"),
        (
            GrammarKind.LARK,
            "start: T\nT: /a(?:(?:)|(?:))ab|(?:(?:)|(?:)|aab)/",
            "library .* failed",
        ),
        (GBNF, "root ::= thing", "thing"),
        (GBNF, "nothing here", "GBNF"),
        (GBNF, f"root ::= {'(' * 5000}", "deep"),
        (GBNF, 'root ::= "' + "x" * (1 << 17), "too long"),
        (GrammarKind.LARK, "start: missing", "missing"),
        (GrammarKind.LARK, "", "Lark"),
        (GrammarKind.LARK, rules(10_000), "500 rules"),
        (GrammarKind.LARK, rules(10_000, name="TERMINAL"), "500 rules"),
        (GrammarKind.LARK, rules(200, groups=3), "500 rules"),
        (GBNF, rules(200, groups=3).replace(":", " ::=").replace("start", "root"), "500 rules"),
        (GrammarKind.LARK, f"start: %json {referring(1000)}", "deep"),
        (GrammarKind.LARK, f"start: %json {nested(300)}", "deep"),
        (GrammarKind.LARK, f"start: %json {nested(30_000)}", "deep"),
        (GrammarKind.LARK, rules(450, f"%json {referring(50)}"), "500 rules"),
    ],
)
def test_what_is_wrong_is_named(kind: GrammarKind, text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){reason}") as raised:
        compiled(Grammar(kind, text))
    assert len(str(raised.value)) < 500, "an error is read on a terminal"


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (SCHEMA, '{"type": "array", "uniqueItems": true}',
         "it uses keywords that specchat cannot guarantee: uniqueItems"),
        (SCHEMA, '{"type": "string", "pattern": "[0-9"}',
         "a pattern in it cannot be read: unclosed character class"),
        (GrammarKind.REGEX, "[0-9", "unclosed character class"),
        (GrammarKind.REGEX, "a/[\n|b", "unclosed character class"),
        (GrammarKind.LARK, "start: digits\ndigits: /[0-9/\n",
         "line 2, column 9: unclosed character class"),
        (GrammarKind.LARK, "start: missing", 'line 1, column 8: unknown name: "missing"'),
    ],
)  # fmt: skip
def test_a_reason_shows_nothing_that_the_user_did_not_write(
    kind: GrammarKind, text: str, why: str
) -> None:
    with pytest.raises(UsageError) as raised:
        compiled(Grammar(kind, text))
    assert raised.value.why == why


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SCHEMA, "true"),
        (SCHEMA, '{"type": "object", "properties": {"a": {"format": "date"}}}'),
        (GrammarKind.JSON_OBJECT, ""),
        (GrammarKind.REGEX, r"\d{4}-\d\d"),
        (GBNF, 'root ::= "yes" | no-word\nno-word ::= "no" [.!]*'),
        (GrammarKind.LARK, "start: /[a-z]+/"),
        (GrammarKind.LARK, rules(450)),
        (GrammarKind.LARK, "\n".join(["start: r0", *(f'r{n}: ("a" | ["b"])' for n in range(999))])),
        (GrammarKind.LARK, rules(100, groups=3)),
        (GBNF, rules(100, groups=3).replace(":", " ::=").replace("start", "root")),
        (GBNF, 'root ::= "(((((" [(]* "))"'),
        (GBNF, 'root ::= "a" ("" | "") "ab" | y\ny ::= "" | "" | "a" "a" "b"'),
        (
            GBNF,
            "\n".join(["root ::= r0", *(f"r{n} ::= r{n + 1}" for n in range(999)), "r999 ::= [a]"]),
        ),
        (GrammarKind.LARK, rules(100, f"%json {referring(90)}")),
    ],
)
def test_usable_grammars_are_read(kind: GrammarKind, text: str) -> None:
    assert compiled(Grammar(kind, text)).text
