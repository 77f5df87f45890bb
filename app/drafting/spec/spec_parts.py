"""Splits a `--draft` SPEC at the commas between drafters."""

import re
from collections.abc import Collection

from backends.base import UsageError

EXAMPLE = "Example: --draft lookup,self"


def split(text: str, with_settings: Collection[str]) -> list[str]:
    """Split at commas outside brackets, except those between the settings of one drafter.

    with_settings: words of drafters that accept settings after a colon.

    Raises:
        UsageError: brackets do not match.
    """
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth != 0:
        raise unreadable(text, "its brackets do not match", EXAMPLE)
    joined: list[str] = []
    for part in parts:
        if joined and re.match(r"\s*\w+\s*=", part) and _is_open(joined[-1], with_settings):
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return joined


def _is_open(part: str, with_settings: Collection[str]) -> bool:
    """Whether a part ends within the settings of a drafter."""
    match = re.match(r"\s*([a-z]+)(\(.*\))?\s*:", part, re.IGNORECASE | re.DOTALL)
    return match is not None and match[1].lower() in with_settings


def unreadable(text: str, why: str, remedy: str = "") -> UsageError:
    """The error for a SPEC that cannot be parsed."""
    return UsageError(f"--draft {text} cannot be read", why, remedy)
