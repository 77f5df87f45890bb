"""A GGUF file without weights: what another machine needs to know a model's vocabulary."""

import struct
from pathlib import Path

from backends.files.gguf_header import parts, read_header

_COUNT_AT = 8
"""Offset of the number of tensors, behind the magic and the version."""

_PARTS = b"split.count"


def vocabulary_alone(path: Path) -> bytes:
    """A model's metadata as a file of its own, with the tokenizer and the chat template.

    Raises:
        ModelError: the file is missing or damaged.
        OSError: it cannot be read.
    """
    first = parts(path)[0]
    header = read_header(first)
    with first.open("rb") as file:
        data = bytearray(file.read(header.metadata_end))
    struct.pack_into("<Q", data, _COUNT_AT, 0)
    if _PARTS.decode() in header.metadata:  # else the engine looks for the other parts
        key = struct.pack("<Q", len(_PARTS)) + _PARTS
        value = data.index(key) + len(key) + struct.calcsize("<I")
        struct.pack_into("<H", data, value, 0)  # 16 bits, as in llama.cpp's gguf-split.cpp
    return bytes(data)
