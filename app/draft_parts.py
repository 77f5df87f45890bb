"""Takes what `--draft` asks for apart, at the commas that separate drafters."""

import re
from collections.abc import Collection

from backends.base import UsageError

EXAMPLE = "Example: --draft lookup,self"


def split(text: str, with_settings: Collection[str]) -> list[str]:
    """What stands between the commas that are in no brackets and part no settings.

    with_settings: the words of drafters that settings may follow, after a colon.

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
    """Whether a drafter is followed by the colon of its settings."""
    found = re.match(r"\s*([a-z]+)(\(.*\))?\s*:", part, re.IGNORECASE | re.DOTALL)
    return found is not None and found[1].lower() in with_settings


def unreadable(text: str, why: str, remedy: str = "") -> UsageError:
    """What is said of a SPEC that means nothing."""
    return UsageError(f"--draft {text} cannot be read", why, remedy)
