"""Verifying downloaded files by their digest."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from models.hub.repository import RepositoryFile

_CHUNK = 8 << 20
_SHA256_LENGTH = 64


def check(path: Path, expected: RepositoryFile) -> Iterator[int]:
    """Verify a file, yielding the number of bytes read at each step.

    Raises:
        ValueError: its content has another digest.
    """
    if len(expected.digest) == _SHA256_LENGTH:
        digest = hashlib.sha256()
    else:  # git's digest of a small file: SHA-1 of its length and content
        digest = hashlib.sha1(f"blob {expected.size_bytes}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            yield len(chunk)
    if digest.hexdigest() != expected.digest:
        raise ValueError(f"its digest is {digest.hexdigest()[:12]}…, not {expected.digest[:12]}…")
