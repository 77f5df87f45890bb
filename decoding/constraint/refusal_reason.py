"""Why the library refuses a schema or a grammar, in one line without its own terms."""

import json
import re

_LONGEST = 300
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
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _unsupported(listed: str) -> str:
    try:
        keywords = ", ".join(json.loads(listed))
    except (ValueError, TypeError):
        keywords = listed
    return shortened(f"it uses keywords that specchat cannot guarantee: {keywords}")
