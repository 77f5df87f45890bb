"""Whether the tokens of a GGUF file differ from each other, as llama.cpp takes for granted."""

import mmap
import struct
from pathlib import Path

from backends.base import ModelError
from backends.files.gguf_header import parts, read_header

MOST_TOKENS = 1 << 20
"""Of which each is compared with the others; vocabularies have a quarter of that."""


def require_distinct_tokens(path: Path) -> None:
    """Refuse a file with a token twice: llama.cpp ends the process over it.

    It takes 0.1 s for a vocabulary of 260,000, so it is for files that never ran here.

    Raises:
        ModelError: it has one, or it is missing or damaged.
    """
    header = read_header(parts(path)[0])
    if not header.tokens_at or header.n_vocab > MOST_TOKENS:
        return
    with (
        parts(path)[0].open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        repeated = _repeated(data, header.tokens_at + struct.calcsize("<IQ"), header.n_vocab)
    if repeated is not None:
        token = repeated[:40].decode("utf-8", errors="replace")
        why = f"its vocabulary has the token {token!r} twice"
        raise ModelError(f"cannot run {path}", why, "Choose another conversion of the model.")


def _repeated(data: mmap.mmap, at: int, count: int) -> bytes | None:
    """A text that comes twice in a list which was checked to lie within the file."""
    seen: set[int] = set()
    unpack = struct.Struct("<Q").unpack_from
    for _ in range(count):
        (size,) = unpack(data, at)
        text = data[at + 8 : at + 8 + size]
        at += 8 + size
        if 0 in text:
            text = text.partition(b"\0")[0]  # as far as the engine reads it
        known = hash(text)
        if known in seen and text:  # empty ones get names of their own
            return text
        seen.add(known)
    return None
