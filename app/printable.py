"""Foreign text made printable: whatever it holds, it cannot drive the terminal it is shown on.

Model answers, chat titles, file names, metadata of models and the texts of errors come from others.
Each character that could steer is shown as one visible cell: C0 and DEL as their picture (␛ for
escape), and as � the C1 controls, what turns the direction of writing (embeddings, overrides,
isolates), line and paragraph separators, and halves of surrogate pairs. Newline and tab stay;
letters of every script do, with the marks and joiners they need.

Only what is shown is changed: what is kept, copied, exported or piped is as it was said.
"""

import json
import re

_RANGES = (
    (0x00, 0x08),
    (0x0B, 0x1F),
    (0x7F, 0x9F),  # DEL and C1
    (0x2028, 0x202E),  # separators, embeddings and overrides
    (0x2066, 0x206F),  # isolates, and controls of direction that Unicode gave up
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
"""What is shown in place of each character that is stopped; one cell wide."""

_LINE_STAND_INS = {code: _stand_in(code) for code in (ord("\n"), ord("\t"))}
_STOPPED = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _RANGES)
_IN_TEXT = re.compile(f"(\r)(?=\n)|[{_STOPPED}]")
STOPPED_IN_LINE = re.compile(f"[\n\t{_STOPPED}]")


def printable(text: str) -> str:
    """Text of any number of lines; a carriage return before a newline goes without a trace."""
    if text.isprintable():
        return text
    return _IN_TEXT.sub(lambda found: "" if found[1] else STAND_INS[ord(found[0])], text)


def one_line(text: str) -> str:
    """Text for a place of one line: newlines and tabs are shown as ␊ and ␉ too."""
    return STOPPED_IN_LINE.sub(lambda found: line_stand_in(found[0]), text)


def line_stand_in(character: str) -> str:
    """What stands in a line for a character; the character itself where it may stand there."""
    code = ord(character)
    return STAND_INS.get(code) or _LINE_STAND_INS.get(code) or character


def printable_json(value: object, indent: int | None = None) -> str:
    """JSON whose text is printable; parsed, it is the value itself."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _IN_TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
