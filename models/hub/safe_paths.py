"""Checking listed paths: valid on every system, and inside their folder."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath

_LONGEST_PATH = 1000
_LONGEST_NAME = 200
"""In bytes; file systems allow 255."""
_RESERVED = frozenset('<>:"|?*\\')
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³]) *(?:\..*)?", re.I)


def is_safe(path: str) -> bool:
    """Whether a path stays in its folder and is valid on every system.

    Excludes absolute paths, `..`, drives, backslashes, device names and unprintable characters.
    """
    # Unpaired surrogates have no UTF-8; they are not printable either.
    if not path.isprintable() or len(path.encode()) > _LONGEST_PATH:
        return False
    return all(map(_is_safe_name, path.split("/")))


def require_distinct(wanted: Iterable[str], listed: Iterable[str]) -> None:
    """Check that wanted paths are distinct files on systems that ignore case and normalization.

    Raises:
        ValueError: another listed path is equal there, or one is both a file and a folder.
    """
    paths = Counter(map(_folded, listed))
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    for path in wanted:
        folded = _folded(path)
        above = map(str, PurePosixPath(folded).parents)
        if paths[folded] > 1:
            raise ValueError(f"{path} is listed in two spellings")
        if folded in folders or any(folder in paths for folder in above):
            raise ValueError(f"{path} is listed as a file and as a folder")


def _is_safe_name(name: str) -> bool:
    return (
        0 < len(name.encode()) <= _LONGEST_NAME
        and name not in (".", "..")
        and not name.endswith((" ", "."))
        and _RESERVED.isdisjoint(name)
        and not _DEVICE.fullmatch(name)
    )


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()
