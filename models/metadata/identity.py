"""Files of a model, what identifies their content, and whether two vocabularies are the same.

What reads a model's files raises an OSError where that fails.
"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from backends.base import DraftUnavailableError, Tokenizer
from backends.files.gguf_header import parts
from models.bounded_files import read_object, write_object
from models.names import projector_for

_OF_FOLDER = ("config.json", "tokenizer.json", "*.safetensors")


def model_files(path: Path) -> list[Path]:
    """Files that determine a model's output: parts of a GGUF file, or files of an MLX folder."""
    if not path.is_dir():
        return parts(path)
    return sorted(file for form in _OF_FOLDER for file in path.glob(form))


def projector_beside(path: Path) -> Path | None:
    """The projector for images in the folder of a model's file; None if there is none."""
    if path.is_dir():
        return None
    with suppress(OSError):
        sizes = {file.name: file.stat().st_size for file in path.parent.glob("*.gguf")}
        if name := projector_for(path.name, sizes):
            return path.with_name(name)
    return None


def stored_bytes(path: Path) -> int:
    """Total size of a model's files. Raises OSError: one of them is missing."""
    return sum(file.stat().st_size for file in model_files(path))


def content_hash(path: Path, memory: Path) -> str:
    """Hex digest of a model; memory: the file that caches digests, ignored if unusable."""
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
    """The cached digest of a model; None if there is none, as reading a large model takes long."""
    digest = read_object(memory).get(_key(model_files(path)))
    return None if digest is None else str(digest)


def stamp(path: Path) -> str:
    """Path, size and modification time of a file, which identify its content."""
    stat = path.stat()
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"


def _key(files: Iterable[Path]) -> str:
    return " ".join(map(stamp, files))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_HEAD_BYTES = 1 << 20
_SAMPLES = 64
_SAMPLE_BYTES = 1 << 12


def fingerprint(path: Path, variant: str = "") -> str:
    """Hex digest of the sizes, heads and evenly spaced samples of a model's files.

    Unlike content_hash it takes milliseconds at any size; a collision only costs measurements.
    variant: distinguishes models derived from the same files.
    """
    digest = hashlib.sha256(variant.encode())
    for part in model_files(path):
        size = part.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        with part.open("rb") as file:
            digest.update(file.read(_HEAD_BYTES))
            for sample in range(_SAMPLES):
                file.seek(size * sample // _SAMPLES)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:24]


_SAMPLED_TOKENS = 1024


def vocabulary_digest(tokenizer: Tokenizer) -> bytes:
    """32-byte digest of a vocabulary's size, control texts and evenly spaced samples.

    Takes a millisecond at any size; a collision only costs speed.
    """
    size = tokenizer.n_vocab
    digest = hashlib.sha256(repr((size, tokenizer.special_texts)).encode())
    for token in range(0, size, max(size // _SAMPLED_TOKENS, 1)):
        digest.update(tokenizer.entry(token) + b"\0")
    return digest.digest()


def require_same_vocabulary(target: Tokenizer, drafter: Tokenizer, name: str) -> None:
    """Compare two vocabularies token by token; the longer may end in padding.

    Raises:
        DraftUnavailableError: they differ; the error names the first difference.
    """
    common = min(target.n_vocab, drafter.n_vocab)
    for token in range(common):
        ours, theirs = target.entry(token), drafter.entry(token)
        if ours != theirs and not (target.is_padding(token) and drafter.is_padding(token)):
            raise _mismatch(
                name, f"token {token} is {_shown(ours)} in the model, {_shown(theirs)} in {name}"
            )
    longer = target if target.n_vocab > common else drafter
    for token in range(common, longer.n_vocab):
        if not longer.is_padding(token):
            owner = "the model" if longer is target else name
            raise _mismatch(
                name, f"token {token}, {_shown(longer.entry(token))}, is only in {owner}"
            )


def _mismatch(name: str, difference: str) -> DraftUnavailableError:
    return DraftUnavailableError(f"{name} cannot draft: vocabulary mismatch", difference)


def _shown(entry: bytes) -> str:
    return repr(entry.decode("utf-8", errors="replace"))
