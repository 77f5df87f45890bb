"""Grammars in the form that the matcher reads, checked without a vocabulary."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from decoding.constraint.checks import depth, lark_depth, schemas
from decoding.constraint.gbnf import gbnf_to_lark
from decoding.constraint.grammar import Grammar, GrammarError, GrammarKind, plain_reason, validated
from decoding.constraint.schema_grammar import schema_grammar

if TYPE_CHECKING:
    from llguidance import LLParserLimits

_LONGEST = 1 << 20
"""Characters of a grammar. A guess; not measured."""

_LONGEST_GBNF = 1 << 17
"""Characters of one in GBNF: 0.2 million took a second to read, 0.9 million 14 s."""

_MOST_RULES = 500
"""Rules and groups of a grammar within each other. A stack of 2 MB holds some 600."""

_DEEPEST = 300
"""Depth of a schema. A stack of 2 MB, as threads of Windows have, holds some 400."""

_MOST_DIGITS = 400
"""Digits of a number in a schema; a double has 309 before its point."""

_MOST_STATES = 50_000
"""States of the lexer, of 1 to 2 kB each: at most about 100 MB. A guess; not measured."""

_MOST_SYMBOLS = 100_000
"""Symbols in the productions of a grammar. A guess; not measured."""

_MOST_ITEMS, _MOST_AT_A_PLACE = 1_000_000, 50_000
"""Places in rules that a mask may look at, some 50 ms, and of those at one place of a text. Of a
grammar whose lexemes are characters a mask of a large vocabulary looks at many."""

_NAMES = {
    GrammarKind.JSON_SCHEMA: "the JSON schema",
    GrammarKind.JSON_OBJECT: "the JSON object",
    GrammarKind.REGEX: "the regular expression",
    GrammarKind.GBNF: "the GBNF grammar",
    GrammarKind.LARK: "the Lark grammar",
}


_FREE_DIVISION = '%llguidance {"no_forcing": true}\nstart: @inner'
"""A grammar around another whose texts may be divided into tokens in any way.

Without it, the library allows a single token wherever a text is certain, the tokenizer's own: that
is another law than masking, as the model may write the same text in other tokens.
"""


@dataclass(frozen=True, slots=True)
class CompiledGrammar:
    """A grammar as the matcher reads it. name: what it is called in an error.

    text: as it is matched. forcing: in the form that tells which tokens are certain.
    """

    name: str
    text: str
    forcing: str

    @classmethod
    def of(cls, name: str, grammar: Mapping[str, Any]) -> "CompiledGrammar":
        """The grammar in both forms; grammar: an entry of the library's list of grammars."""
        inner = {**grammar, "name": "inner"}
        outer = {"name": "outer", "lark_grammar": _FREE_DIVISION}
        return cls(
            name, json.dumps({"grammars": [outer, inner]}), json.dumps({"grammars": [inner]})
        )

    def refused(self, reason: str) -> GrammarError:
        return _refused(self.name, reason)


def limits() -> "LLParserLimits":
    """Bounds on what a grammar may cost in time and memory."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        max_items_in_row=_MOST_AT_A_PLACE,
        step_max_items=_MOST_ITEMS,
        max_lexer_states=_MOST_STATES,
        max_grammar_size=_MOST_SYMBOLS,
        verbose_errors=False,
    )


def compiled(grammar: Grammar) -> CompiledGrammar:
    """Compile and check a grammar; takes milliseconds, and no model.

    Raises:
        GrammarError: it cannot be read, uses what is not supported, or nothing can match it.
    """
    name = _NAMES[grammar.kind]
    longest = _LONGEST_GBNF if grammar.kind is GrammarKind.GBNF else _LONGEST
    if len(grammar.text) > longest:
        raise GrammarError(f"{name} is too long", f"at most {longest:,} characters")
    try:
        made = CompiledGrammar.of(name, _converted(name, grammar))
        is_wrong, messages = validated(made.text, limits())
    except RecursionError as error:
        raise GrammarError(f"{name} cannot be used", "it is nested too deeply") from error
    except ValueError as error:
        raise _refused(name, str(error)) from error
    if is_wrong:
        raise made.refused(messages[0])
    return made


def _converted(name: str, grammar: Grammar) -> Mapping[str, Any]:
    """A grammar as an entry of the library's list of grammars."""
    from llguidance import LLMatcher

    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            text = schema_grammar(_schema(grammar.text))
            if lark_depth(text) > _MOST_RULES:
                raise _too_deep()
            return {"lark_grammar": text}
        case GrammarKind.JSON_OBJECT:
            return {"lark_grammar": schema_grammar({"type": "object"})}
        case GrammarKind.REGEX:
            (entry,) = json.loads(LLMatcher.grammar_from_regex(grammar.text))["grammars"]
            return entry
        case GrammarKind.GBNF:
            return {"lark_grammar": _checked_lark(name, gbnf_to_lark(grammar.text))}
        case GrammarKind.LARK:
            return {"lark_grammar": _checked_lark(name, grammar.text)}


def _schema(text: str) -> Mapping[str, Any]:
    """The object of a schema.

    Raises:
        GrammarError: it is not JSON, neither an object nor a boolean, or too deep.
    """
    try:
        schema: object = json.loads(
            text,
            parse_float=_exact,
            parse_int=lambda digits: int(_exact(digits)),
            parse_constant=_exact,
        )
    except ValueError as error:
        raise GrammarError("the JSON schema cannot be read", f"it is not JSON: {error}") from error
    except RecursionError as error:
        raise GrammarError("the JSON schema cannot be used", "it is nested too deeply") from error
    if isinstance(schema, dict):
        schema = cast("dict[str, Any]", schema)
        _check_bounded(schema)
        return schema
    if schema is True:
        return {}
    why = "nothing can match it" if schema is False else "it is neither an object nor a boolean"
    raise GrammarError("the JSON schema cannot be used", why)


def _exact(digits: str) -> Decimal:
    """A number of a schema.

    Raises:
        ValueError: it is none.
        GrammarError: it is too long to be written out.
    """
    number = Decimal(digits)
    if not number.is_finite():
        raise ValueError(f"{digits} is no number of JSON")
    if len(digits) > _MOST_DIGITS or abs(number.adjusted()) > _MOST_DIGITS:
        why = f"a number in it has more than {_MOST_DIGITS} digits"
        raise GrammarError("the JSON schema cannot be used", why)
    return number


def _check_bounded(schema: Mapping[str, Any]) -> None:
    """Check that a schema is not too deep.

    Raises:
        GrammarError: it is.
    """
    if depth(schema) > _DEEPEST:
        raise _too_deep()


def _too_deep() -> GrammarError:
    why = "it is nested too deeply, or has too many parts or references"
    return GrammarError("the JSON schema cannot be used", why)


def _checked_lark(name: str, text: str) -> str:
    """A grammar in the Lark form, if following its rules and schemas cannot end the process.

    Raises:
        GrammarError: it could.
    """
    for schema in schemas(text):
        _check_bounded(schema)
    if lark_depth(text) > _MOST_RULES:
        why = f"it has more than {_MOST_RULES} rules and groups within each other"
        raise GrammarError(f"{name} cannot be used", why)
    return text


def _refused(name: str, reason: str) -> GrammarError:
    has_lines = name == _NAMES[GrammarKind.LARK]  # others are rewritten
    return GrammarError(f"{name} cannot be used", plain_reason(reason, has_lines=has_lines))
