"""SHA-256 of a model's files, computed once and remembered until one changes."""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import cast

from backends.gguf_header import parts


def content_hash(path: Path, memory: Path) -> str:
    """The hex digest of a model; memory is the file that keeps digests between runs.

    Raises:
        OSError: the file cannot be read. A memory that cannot be used is done without.
    """
    files = parts(path)
    key = " ".join(map(_stamp, files))
    known = _recall(memory)
    if key not in known:
        digests = "".join(map(_digest, files))
        one = len(files) == 1
        known[key] = digests if one else hashlib.sha256(digests.encode()).hexdigest()
        with contextlib.suppress(OSError):
            fresh = memory.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(known), encoding="utf-8")
            fresh.replace(memory)
    return known[key]


def _stamp(path: Path) -> str:
    stat = path.stat()
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _recall(memory: Path) -> dict[str, str]:
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {str(key): str(digest) for key, digest in cast(dict[str, str], known).items()}
