"""Makes foreign text printable, so that it cannot drive the terminal.

Model answers, chat titles, file names, metadata of models and error messages are foreign text. Each
control character becomes one visible cell: C0 and DEL their picture (␛ for escape); C1 controls,
changes of direction (embeddings, overrides, isolates), line and paragraph separators and unpaired
surrogates become �. Newlines, tabs and letters of every script stay, with their marks and joiners.

Only shown text is changed; stored, copied, exported and piped text is not.
"""

import json
import re

_RANGES = (
    (0x00, 0x08),
    (0x0B, 0x1F),
    (0x7F, 0x9F),  # DEL and C1
    (0x2028, 0x202E),  # separators, embeddings and overrides
    (0x2066, 0x206F),  # isolates, and deprecated controls of direction
    (0xD800, 0xDFFF),
)
_PICTURES = 0x2400
_DELETE = 0x7F
_LOST = "\ufffd"


def _stand_in(code: int) -> str:
    if code < ord(" "):
        return chr(_PICTURES + code)
    return "\u2421" if code == _DELETE else _LOST


STAND_INS = {code: _stand_in(code) for first, last in _RANGES for code in range(first, last + 1)}
"""The visible replacement of each control character, one cell wide."""

_LINE_STAND_INS = {code: _stand_in(code) for code in (ord("\n"), ord("\t"))}
_STOPPED = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _RANGES)
_IN_TEXT = re.compile(f"(\r)(?=\n)|[{_STOPPED}]")
STOPPED_IN_LINE = re.compile(f"[\n\t{_STOPPED}]")


def printable(text: str) -> str:
    """Make text of several lines printable; CR LF becomes a newline."""
    if text.isprintable():
        return text
    return _IN_TEXT.sub(lambda match: "" if match[1] else STAND_INS[ord(match[0])], text)


def one_line(text: str) -> str:
    """Make text printable on one line: newlines and tabs become ␊ and ␉."""
    return STOPPED_IN_LINE.sub(lambda match: line_stand_in(match[0]), text)


def line_stand_in(character: str) -> str:
    """The replacement of a character within a line, or the character itself."""
    code = ord(character)
    return STAND_INS.get(code) or _LINE_STAND_INS.get(code) or character


def printable_json(value: object, indent: int | None = None) -> str:
    """JSON with control characters escaped; parsing it gives the value."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _IN_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
