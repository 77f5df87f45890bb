"""SHA-256 of a model's files, cached until one changes."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from models.json_file import read_object, write_object
from models.metadata.model_files import model_files


def content_hash(path: Path, memory: Path) -> str:
    """Hex digest of a model; memory: the file that caches digests, ignored if unusable.

    Raises:
        OSError: a model file cannot be read.
    """
    files = model_files(path)
    key = _key(files)
    known = {str(key): str(digest) for key, digest in read_object(memory).items()}
    if key not in known:
        digests = "".join(map(_digest, files))
        is_single = len(files) == 1
        known[key] = digests if is_single else hashlib.sha256(digests.encode()).hexdigest()
        write_object(memory, known)
    return known[key]


def known_hash(path: Path, memory: Path) -> str | None:
    """The cached digest of a model; None if there is none, as reading a large model takes long.

    Raises:
        OSError: a model file cannot be read.
    """
    digest = read_object(memory).get(_key(model_files(path)))
    return None if digest is None else str(digest)


def stamp(path: Path) -> str:
    """Path, size and modification time of a file, which identify its content.

    Raises:
        OSError: there is no such file.
    """
    stat = path.stat()
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"


def _key(files: Iterable[Path]) -> str:
    return " ".join(map(stamp, files))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
