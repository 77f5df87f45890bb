"""Files named with @ in a message become part of it."""

import re
from pathlib import Path

from backends.base import UsageError

_MOST_BYTES = 1 << 20
_NAMED = re.compile(r"(?<!\S)@(\"[^\"]+\"|\S+)")


def named_files(text: str) -> list[Path]:
    """The files a message names, in order; only what exists is taken for one."""
    found = [Path(name.strip('"')).expanduser() for name in _NAMED.findall(text)]
    return [path for path in dict.fromkeys(found) if path.is_file()]


def with_files(text: str) -> str:
    """A message followed by the files it names.

    Raises:
        UsageError: a file is no text, or too large.
    """
    blocks = [f"{path.name}:\n```\n{_read(path)}\n```" for path in named_files(text)]
    return "\n\n".join([text, *blocks])


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is too large", "a file may have 1 MB")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise UsageError(f"cannot read {path}", why) from error
