"""Splits a GGUF file into its entries, so that single values can be damaged."""

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from backends.files.gguf_header import ARRAY, SCALARS, STRING

_ALIGNMENT = 32


@dataclass(slots=True)
class Entry:
    """Key and value; payload: the bytes after the type number."""

    key: bytes
    kind: int
    payload: bytes


@dataclass(slots=True)
class TensorEntry:
    """Entry of a tensor in the header."""

    name: bytes
    shape: list[int]
    ggml_type: int
    offset: int


@dataclass(slots=True)
class GgufParts:
    """Parts of a file; whole() serializes them without checks."""

    entries: list[Entry] = field(default_factory=list[Entry])
    tensors: list[TensorEntry] = field(default_factory=list[TensorEntry])
    data: bytes = b""

    @classmethod
    def of(cls, good: bytes) -> "GgufParts":
        """Parse a valid file."""
        n_tensors, n_entries = struct.unpack_from("<QQ", good, 8)
        parts, at = cls(), 24
        for _ in range(n_entries):
            key, at = _text(good, at)
            (kind,) = struct.unpack_from("<I", good, at)
            end = _end(good, at + 4, kind)
            parts.entries.append(Entry(key, kind, good[at + 4 : end]))
            at = end
        for _ in range(n_tensors):
            name, at = _text(good, at)
            (rank,) = struct.unpack_from("<I", good, at)
            shape = list(struct.unpack_from(f"<{rank}Q", good, at + 4))
            ggml_type, offset = struct.unpack_from("<IQ", good, at + 4 + 8 * rank)
            parts.tensors.append(TensorEntry(name, shape, ggml_type, offset))
            at += 16 + 8 * rank
        parts.data = good[-(-at // _ALIGNMENT) * _ALIGNMENT :]
        return parts

    def entry(self, key: bytes) -> Entry | None:
        """Entry whose key has this suffix, None if there is none."""
        return next((one for one in self.entries if one.key.endswith(key)), None)

    def keep(self, is_kept: Callable[[TensorEntry], bool]) -> None:
        """Remove tensors with their bytes; the engine accepts no gaps."""
        ends = sorted({*(one.offset for one in self.tensors), len(self.data)})
        after = dict(itertools.pairwise(ends))
        data = b""
        kept = [one for one in self.tensors if is_kept(one)]
        for one in kept:
            bytes_ = self.data[one.offset : after.get(one.offset, one.offset)]
            one.offset = len(data)
            data += bytes_ + bytes(-len(bytes_) % _ALIGNMENT)
        self.tensors, self.data = kept, data

    def whole(self) -> bytes:
        """Serialize the file."""
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.entries))
        for one in self.entries:
            head += as_text(one.key) + struct.pack("<I", one.kind) + one.payload
        for tensor in self.tensors:
            shape = [extent & (1 << 64) - 1 for extent in tensor.shape]
            head += as_text(tensor.name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
            head += struct.pack("<IQ", tensor.ggml_type, tensor.offset)
        return head + bytes(-len(head) % _ALIGNMENT) + self.data


def as_text(text: bytes) -> bytes:
    """Serialize a text."""
    return struct.pack("<Q", len(text)) + text


def texts(payload: bytes) -> list[bytes]:
    """Parse a list of texts, whose length may be damaged."""
    found, at = list[bytes](), 12
    while at + 8 <= len(payload):
        text, at = _text(payload, at)
        found.append(text)
    return found


def as_texts(found: list[bytes]) -> bytes:
    """Serialize a list of texts, without its type number."""
    return struct.pack("<IQ", STRING, len(found)) + b"".join(map(as_text, found))


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + size], at + 8 + size


def _end(data: bytes, at: int, kind: int) -> int:
    if kind == STRING:
        return _text(data, at)[1]
    if kind != ARRAY:
        return at + struct.calcsize(SCALARS[kind])
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    for _ in range(count):
        at = _end(data, at, inner)
    return at
