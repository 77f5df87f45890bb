"""SHA-256 of a model's files, computed once and remembered until one changes."""

import hashlib
from pathlib import Path

from models.json_file import read_object, write_object
from models.metadata.model_files import model_files


def content_hash(path: Path, memory: Path) -> str:
    """The hex digest of a model; memory is the file that keeps digests between runs.

    Raises:
        OSError: the file cannot be read. A memory that cannot be used is done without.
    """
    files = model_files(path)
    key = " ".join(map(stamp, files))
    known = {str(key): str(digest) for key, digest in read_object(memory).items()}
    if key not in known:
        digests = "".join(map(_digest, files))
        one = len(files) == 1
        known[key] = digests if one else hashlib.sha256(digests.encode()).hexdigest()
        write_object(memory, known)
    return known[key]


def stamp(path: Path) -> str:
    """Where a file lies, its size and when it was written: another one has another.

    Raises:
        OSError: there is no such file.
    """
    stat = path.stat()
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
