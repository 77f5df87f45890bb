"""Reads the schema or the grammar that answers must match from a file."""

from pathlib import Path

from backends.base import UsageError
from backends.base.regular_file import NotTextError, read_text
from decoding.constraint.compiled_grammar import compiled
from decoding.constraint.grammar import Grammar, GrammarKind

_MOST_BYTES = 4 << 20
"""A character has up to 4 bytes; how long a grammar may be is checked where it is compiled."""

_BY_SUFFIX = {
    ".gbnf": GrammarKind.GBNF,
    ".lark": GrammarKind.LARK,
    ".regex": GrammarKind.REGEX,
    ".json": GrammarKind.JSON_SCHEMA,
}


def read_schema(path: Path) -> Grammar:
    """The JSON schema in a file.

    Raises:
        UsageError: the file cannot be read, or the schema cannot be used.
    """
    return _checked(path, GrammarKind.JSON_SCHEMA)


def read_grammar(path: Path, usual: GrammarKind = GrammarKind.GBNF) -> Grammar:
    """The grammar in a file, of the kind that its suffix tells; of the usual kind if it tells none.

    Raises:
        UsageError: the file cannot be read, or the grammar cannot be used.
    """
    return _checked(path, _BY_SUFFIX.get(path.suffix.lower(), usual))


def _checked(path: Path, kind: GrammarKind) -> Grammar:
    try:
        text = read_text(path, _MOST_BYTES)
    except NotTextError as error:
        raise UsageError(f"{path} {error.fault}", error.why) from error
    except OSError as error:
        raise UsageError(f"cannot read {path}", error.strerror or str(error)) from error
    if kind is GrammarKind.REGEX:  # an editor ends a file with a line break
        text = text.removesuffix("\n")
    grammar = Grammar(kind, text)
    try:
        compiled(grammar)
    except UsageError as error:
        raise UsageError(f"{path}: {error.what}", error.why, error.remedy) from error
    return grammar
