"""What a reply must look like, as the user or a program states it."""

from dataclasses import dataclass
from enum import StrEnum


class GrammarKind(StrEnum):
    """The language that a grammar is written in."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    GBNF = "gbnf"
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar that the whole text of a reply must match; text is empty for JSON_OBJECT."""

    kind: GrammarKind
    text: str = ""
