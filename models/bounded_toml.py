"""Parsing untrusted TOML within bounds of nesting and time."""

import re
import tomllib
from typing import Any

MOST_PARTS = 32
"""Most parts of a dotted key, which take quadratic time; genuine keys have three."""

MOST_DEPTH = 32
"""Deepest nesting of brackets, which is parsed recursively; genuine files have two."""

_TEXT_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\"]|"(?!""))*+(?:"{3,5})?'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5})?"
    r'|"(?:\\.|[^"\\\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
"""Also matches unclosed texts, so that matching takes linear time."""

_PART = r"[^\s.=\[\]{},]"
_LONG_KEY = re.compile(rf"(?<!{_PART})(?:{_PART}++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")
_BRACKET = re.compile(r"[\[\]{}]")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: it is invalid, or nested deeper than any genuine file.
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
    """Placeholder: a text may be part of a key, a comment is not."""
    return "" if match[0].startswith("#") else "_"
