"""SHA-256 of large files, computed once and remembered until a file changes."""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import cast


def content_hash(path: Path, memory: Path) -> str:
    """The hex digest of a file; memory is the file that keeps digests between runs.

    Raises:
        OSError: the file cannot be read. A memory that cannot be used is done without.
    """
    stat = path.stat()
    key = f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    known = _recall(memory)
    if key not in known:
        with path.open("rb") as file:
            known[key] = hashlib.file_digest(file, "sha256").hexdigest()
        with contextlib.suppress(OSError):
            fresh = memory.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(known), encoding="utf-8")
            fresh.replace(memory)
    return known[key]


def _recall(memory: Path) -> dict[str, str]:
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {str(key): str(digest) for key, digest in cast(dict[str, str], known).items()}
