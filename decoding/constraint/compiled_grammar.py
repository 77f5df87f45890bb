"""Grammars in the form that the matcher reads, checked without a vocabulary."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.base import UsageError
from decoding.constraint.grammar import Grammar, GrammarKind

if TYPE_CHECKING:
    from llguidance import LLParserLimits

_LONGEST = 1 << 20
"""Characters of a grammar. A guess; not measured."""

_MOST_STATES = 50_000
"""States of the lexer, of 1 to 2 kB each: at most about 100 MB. A guess; not measured."""

_MOST_SYMBOLS = 100_000
"""Symbols in the productions of a grammar. A guess; not measured."""

_LONGEST_REASON = 300
"""Characters of an error that are shown."""

_WHITE_SPACE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON on one line, written as most models write it.

Free white space would let a small model write blanks until its reply is cut off, and leave little
of the text certain.
"""

_NAMES = {
    GrammarKind.JSON_SCHEMA: "the JSON schema",
    GrammarKind.JSON_OBJECT: "the JSON object",
    GrammarKind.REGEX: "the regular expression",
    GrammarKind.GBNF: "the GBNF grammar",
    GrammarKind.LARK: "the Lark grammar",
}


@dataclass(frozen=True, slots=True)
class CompiledGrammar:
    """A grammar as the matcher reads it. name: what it is called in an error."""

    name: str
    text: str

    def refused(self, reason: str) -> UsageError:
        """The error that names what is wrong with it."""
        return UsageError(f"{self.name} cannot be used", _short(reason))


def limits() -> "LLParserLimits":
    """Bounds on what a grammar may cost in time and memory."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        max_lexer_states=_MOST_STATES, max_grammar_size=_MOST_SYMBOLS, verbose_errors=False
    )


def compiled(grammar: Grammar) -> CompiledGrammar:
    """Compile and check a grammar; takes milliseconds, and no model.

    Raises:
        UsageError: it cannot be read, uses what is not supported, or nothing can match it.
    """
    from llguidance import LLMatcher

    name = _NAMES[grammar.kind]
    if len(grammar.text) > _LONGEST:
        raise UsageError(f"{name} is too long", f"at most {_LONGEST:,} characters")
    try:
        made = CompiledGrammar(name, _converted(grammar))
        is_wrong, messages = LLMatcher.validate_grammar_with_warnings(made.text, limits=limits())
    except UsageError:
        raise
    except (ValueError, RecursionError) as error:  # ValueError also for text that is too deep
        raise CompiledGrammar(name, "").refused(str(error)) from error
    if is_wrong:
        raise made.refused(messages[0])
    return made


def _converted(grammar: Grammar) -> str:
    from llguidance import LLMatcher

    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return _from_schema(_checked_json(grammar.text))
        case GrammarKind.JSON_OBJECT:
            return _from_schema('{"type": "object"}')
        case GrammarKind.REGEX:
            return LLMatcher.grammar_from_regex(grammar.text)
        case GrammarKind.GBNF:
            return LLMatcher.grammar_from_lark(_from_gbnf(grammar.text))
        case GrammarKind.LARK:
            return LLMatcher.grammar_from_lark(grammar.text)


def _from_schema(schema: str) -> str:
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(schema, defaults=_WHITE_SPACE)


def _checked_json(text: str) -> str:
    """The text of a schema.

    Raises:
        UsageError: it is not JSON, or neither an object nor a boolean.
    """
    try:
        schema: object = json.loads(text)
    except ValueError as error:
        raise UsageError("the JSON schema cannot be read", f"it is not JSON: {error}") from error
    except RecursionError as error:
        raise UsageError("the JSON schema cannot be used", "it is nested too deeply") from error
    if not isinstance(schema, dict | bool):
        raise UsageError("the JSON schema cannot be used", "it is neither an object nor a boolean")
    return text


def _from_gbnf(text: str) -> str:
    """A GBNF grammar, as of llama.cpp, in the Lark form.

    Raises:
        UsageError: it cannot be read.
    """
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return gbnf_to_lark(text)
    except Exception as error:  # its parser raises whatever it stumbles over
        reason = _short(str(error) or type(error).__name__)
        raise UsageError("the GBNF grammar cannot be read", reason) from error


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 1]}…"
