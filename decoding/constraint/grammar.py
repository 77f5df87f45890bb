"""What a reply must look like, as the user or a program states it, and why it is refused."""

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from backends.base import ModelError, UsageError

if TYPE_CHECKING:
    from llguidance import LLParserLimits


class GrammarKind(StrEnum):
    """The language that a grammar is written in."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    GBNF = "gbnf"
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar that the whole text of a reply must match; text is empty for JSON_OBJECT.

    file: the one that it was read from, which errors name.
    """

    kind: GrammarKind
    text: str = ""
    file: str = field(default="", compare=False)


class GrammarError(UsageError):
    """A schema or grammar that cannot be used."""


class ConstraintError(ModelError):
    """A grammar that became too complex, or leaves nothing to follow, at the place asked about.

    Along a draft it ends nothing: without the draft the reply may go on.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            "the answer was stopped",
            f"its grammar cannot be followed any further ({why})",
            "The answer so far is kept. Simplify the schema or the grammar.",
        )


class NotAllowedError(ModelError):
    """A token was emitted that may not follow, as the model left no choice but such."""

    def __init__(self) -> None:
        super().__init__(
            "the answer was stopped",
            "the model gives no score to any token that its grammar allows",
            "The answer so far is kept.",
        )


def validated(grammar: str, limits: "LLParserLimits | None" = None) -> tuple[bool, list[str]]:
    """Whether something is wrong with a list of grammars, and what the library says of it."""
    from llguidance import LLMatcher

    try:
        return LLMatcher.validate_grammar_with_warnings(grammar, limits=limits)
    except BaseException as panic:
        if (
            type(panic).__name__ != "PanicException"
        ):  # which the library raises, and does not export
            raise
        return True, [f"the library that reads it failed: {panic}"]


_LONGEST_REASON = 300
"""Characters of a reason that are shown."""

_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): ")
_EXCERPT = re.compile(r"\n +\d+ \| ")
"""How the lines begin that show a fault with a caret below it."""
_KEYWORDS = "Unimplemented keys: "
_BEFORE_EXPRESSION, _AFTER_EXPRESSION = "regex parse error:", "\nerror: "


def plain_reason(message: str, *, has_lines: bool = False) -> str:
    """The reason in a message of the library.

    has_lines: whether the places that it names are those of the text that the user wrote.
    """
    if message.startswith("panic"):  # a bound of the library; what follows is about its own code
        return "it is too large"
    if message.startswith(_KEYWORDS):
        return _unsupported(message.removeprefix(_KEYWORDS))
    place = _PLACE.match(message)
    reason = message[place.end() :] if place else message
    before, found, why = reason.rpartition(_AFTER_EXPRESSION)
    if found and _BEFORE_EXPRESSION in before:
        reason = why if place else f"a pattern in it cannot be read: {why}"
    reason = _EXCERPT.split(reason, maxsplit=1)[0]
    if place and has_lines:
        reason = f"line {place[1]}, column {place[2]}: {reason}"
    return shortened(reason)


def shortened(reason: str) -> str:
    """A reason on one line, cut where it is long."""
    line = " ".join(reason.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 1]}…"


def _unsupported(listed: str) -> str:
    try:
        keywords = ", ".join(json.loads(listed))
    except (ValueError, TypeError):
        keywords = listed
    return shortened(f"it uses keywords that specchat cannot guarantee: {keywords}")
