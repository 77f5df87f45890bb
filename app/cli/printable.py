"""Text of others on standard output, without what would steer a terminal."""

import json
import unicodedata

from app.cli import terminal

_TURNS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def say_json(value: object) -> None:
    """JSON escapes the older control characters itself; the later ones steer a terminal too."""
    text = json.dumps(value, ensure_ascii=False)
    terminal.say("".join(f"\\u{ord(one):04x}" if _steers(one) else one for one in text) + "\n")


def printable(text: str) -> str:
    """Text without what would steer a terminal."""
    return "".join(one for one in text if one in "\n\t" or not _steers(one))


def _steers(one: str) -> bool:
    """Control characters, and those that turn the direction of writing."""
    return unicodedata.category(one) == "Cc" or unicodedata.bidirectional(one) in _TURNS
