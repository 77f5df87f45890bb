"""Names of models as people type them."""

import difflib
import re
from collections.abc import Iterable


def simplified(name: str) -> str:
    """A name without case and punctuation, so that Llama 3 8B is llama3-8b."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names like this one, the nearest first."""
    by_simple: dict[str, str] = {}
    for candidate in known:
        by_simple.setdefault(simplified(candidate), candidate)
    near = difflib.get_close_matches(simplified(name), by_simple, n=3, cutoff=0.5)
    return [by_simple[simple] for simple in near]
