"""TOML from files that anyone may have written: read within bounds of depth and time."""

import re
import tomllib
from typing import Any

MOST_PARTS = 32
"""Of a dotted key, whose reading takes quadratic time; true ones have three."""

MOST_DEPTH = 32
"""Of brackets within brackets, which are read recursively; true ones have two."""

_TEXT_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\"]|"(?!""))*+(?:"{3,5})?'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5})?"
    r'|"(?:\\.|[^"\\\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
"""Also matches what is not closed, so that no character is looked at twice."""

_PART = r"[^\s.=\[\]{},]"
_LONG_KEY = re.compile(rf"(?<!{_PART})(?:{_PART}++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")
_BRACKET = re.compile(r"[\[\]{}]")


def parse_toml(text: str) -> dict[str, Any]:
    """What a text of TOML sets.

    Raises:
        ValueError: it is no TOML, or goes deeper than any true file does.
    """
    bare = _TEXT_OR_COMMENT.sub(_stand_in, text)
    if _LONG_KEY.search(bare):
        raise ValueError(f"a key has more than {MOST_PARTS} parts")
    depth = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MOST_DEPTH:
            raise ValueError(f"brackets are nested more than {MOST_DEPTH} deep")
    return tomllib.loads(text)


def _stand_in(match: re.Match[str]) -> str:
    """A text may be part of a key; a comment ends one."""
    return "" if match[0].startswith("#") else "_"
