"""Reading the header of an untrusted GGUF file without an engine.

llama.cpp aborts the process on some broken headers; this reader reports them as errors first, and
provides the facts that need no loading. Format: the GGUF specification of ggml, version 3.
"""

import functools
import itertools
import mmap
import re
import struct
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import BinaryIO

from backends.base import ModelError
from backends.base.safe_files import open_regular

BRIEFLY_MAPPED = threading.RLock()
"""Held while a file is mapped briefly. Who holds it finds only mappings that stay: what is done to
the addresses of one that has ended, such as dropping its pages, hits whatever lies there by then.
"""


@contextmanager
def briefly_mapped(file: BinaryIO) -> Generator[mmap.mmap]:
    """Map an open file for reading."""
    with BRIEFLY_MAPPED, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Turn what goes wrong within the block, where an untrusted file is read, into a ModelError."""
    try:
        yield
    except FileNotFoundError as error:
        raise ModelError(f"no file {path}") from error
    except OSError as error:
        raise ModelError(f"cannot read {path}", error.strerror or str(error)) from error
    except (struct.error, ValueError, OverflowError, RecursionError) as error:
        reason = "it ends inside its header" if isinstance(error, struct.error) else str(error)
        what = f"{path} is damaged or cut short"
        raise ModelError(what, reason, "Download or copy it again.") from error


def tensor_bytes(ggml_type: int, shape: Sequence[int]) -> int | None:
    """Bytes of a tensor without padding; None for an unknown type or a broken row."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(ggml_type)]
    except (KeyError, ValueError):
        return None
    return prod(shape) // block * size if shape[0] % block == 0 else None


def data_bytes(tensors: Sequence[tuple[Sequence[int], int, int]], alignment: int) -> int | None:
    """Bytes of all tensors, given as shape, type and offset in order of offset.

    None if their sizes do not explain their offsets: the file is then damaged, not incomplete.
    """
    end = 0
    for shape, ggml_type, offset in tensors:
        size = tensor_bytes(ggml_type, shape)
        if size is None or offset != -(-end // alignment) * alignment:
            return None
        end = offset + size
    return end


MAX_ARRAY = 1 << 24
MAX_STRING = 1 << 24
MAX_TEXT = 1 << 25
"""Most bytes of text kept from one header, names and values together."""

MAX_KEPT_LIST = 1024
"""Longest list of numbers kept, such as heads by layer; of longer ones only the length."""

MAX_KEPT_NUMBERS = 1 << 16

SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i",
    6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
STRING, ARRAY = 8, 9
_BYTE_TOKEN = re.compile(rb"<0x([0-9A-F]{2})>")


Number = int | float | bool
Scalar = str | Number


class Cursor:
    """Reads little-endian values from a buffer, never past its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0
        self.text_left = MAX_TEXT
        self.numbers_left = MAX_KEPT_NUMBERS
        self.spelled: set[int] = set()

    def take(self, form: str) -> Scalar:
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def count(self, limit: int, what: str) -> int:
        value = int(self.take("<Q"))
        if value > limit:
            raise ValueError(f"{what} of {value:,}")
        return value

    def skip(self, size: int) -> None:
        if self.at + size > len(self.data):
            raise ValueError("it ends inside its header")
        self.at += size

    def string(self) -> str:
        size = self.count(MAX_STRING, "a text length")
        start = self.at
        self.skip(size)
        self.text_left -= size
        if self.text_left < 0:
            raise ValueError(f"more than {MAX_TEXT:,} bytes of text")
        return self.data[start : self.at].decode("utf-8", errors="replace")

    def numbers(self) -> tuple[Number, ...]:
        """List of numbers at the cursor, () if it is too long to keep. The cursor stays."""
        kind, size = struct.unpack_from("<IQ", self.data, self.at)
        if kind not in SCALARS or size > min(MAX_KEPT_LIST, self.numbers_left):
            return ()
        self.numbers_left -= size
        form = f"<{size}{SCALARS[kind][1]}"
        return struct.unpack_from(form, self.data, self.at + struct.calcsize("<IQ"))

    def skip_texts(self, count: int, *, are_tokens: bool) -> None:
        """Skip texts, of which files have hundreds of thousands; note bytes that have a token."""
        data, at, unpack = self.data, self.at, struct.Struct("<Q").unpack_from
        for _ in range(count):
            (size,) = unpack(data, at)
            if size > MAX_STRING:
                raise ValueError(f"a text length of {size:,}")
            if are_tokens and size in (1, 6):
                self._note_byte(data[at + 8 : at + 8 + size])
            at += 8 + size
        self.skip(at - self.at)

    def _note_byte(self, token: bytes) -> None:
        spelled = _BYTE_TOKEN.fullmatch(token)
        if spelled:
            self.spelled.add(int(spelled[1], 16))
        elif len(token) == 1:
            self.spelled.add(token[0])

    def skip_array(self, depth: int = 0, *, are_tokens: bool = False) -> int:
        kind = int(self.take("<I"))
        size = self.count(MAX_ARRAY, "a list length")
        if kind == ARRAY and depth > 2:
            raise ValueError("lists nested too deep")
        if kind in SCALARS:
            self.skip(size * struct.calcsize(SCALARS[kind]))
        elif kind == STRING:
            self.skip_texts(size, are_tokens=are_tokens)
        elif kind == ARRAY:
            for _ in range(size):
                self.skip_array(depth + 1)
        else:
            raise ValueError(f"an unknown value type {kind}")
        return size


MAX_ENTRIES = 1 << 16
_TOKENS = "tokenizer.ggml.tokens"

# SentencePiece encodes text without a token byte by byte. A space is U+2581 by then; the other
# bytes never occur in UTF-8.
_NEVER_SPELLED = frozenset({0x20, 0xC0, 0xC1, *range(0xF5, 0x100)})


class IncompleteFileError(ModelError):
    """A model whose file ends before its last tensor does. Both sizes are in bytes."""

    def __init__(self, path: Path, present_bytes: int, complete_bytes: int) -> None:
        share = f"{present_bytes / 1e9:.1f} of {complete_bytes / 1e9:.1f} GB"
        if complete_bytes < 1e8:
            share = f"{present_bytes / 1e6:.1f} of {complete_bytes / 1e6:.1f} MB"
        why = f"the file is incomplete ({share})"
        super().__init__(f"{path.name} cannot be loaded", why, f"Download or copy {path} again.")
        self.present_bytes = present_bytes
        self.complete_bytes = complete_bytes


@dataclass(frozen=True, slots=True)
class Tensor:
    """Entry of a tensor; stored_bytes includes at most one alignment unit of padding."""

    name: str
    shape: tuple[int, ...]
    stored_bytes: int
    ggml_type: int
    """Number of its type in ggml."""
    offset: int
    """Where its bytes begin in the file."""

    @property
    def parameters(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata (scalars, short lists of numbers, lengths of other lists) and tensors."""

    metadata: dict[str, Scalar]
    array_lengths: dict[str, int]
    tensors: tuple[Tensor, ...]
    arrays: dict[str, tuple[Number, ...]] = field(default_factory=dict[str, tuple[Number, ...]])
    spelled_bytes: frozenset[int] = frozenset()
    """Bytes with a token of their own."""
    tokens_at: int = 0
    """Offset of the token list in the file; 0 if there is none, or it is not of texts."""
    metadata_end: int = 0
    """Offset behind the metadata."""

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def integer(self, key: str, default: int = 0) -> int:
        """Integer under a key of this architecture, such as block_count."""
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        return int(value) if isinstance(value, int) else default

    def with_integer(self, key: str, value: int) -> "GgufHeader":
        """Copy with another integer under a key of this architecture."""
        changed = {**self.metadata, f"{self.architecture}.{key}": value}
        return replace(self, metadata=changed)

    def integers(self, key: str) -> tuple[int, ...]:
        """Integers by layer, empty if the file has no such list."""
        values = self.arrays.get(f"{self.architecture}.{key}", ())
        return tuple(int(value) for value in values if isinstance(value, int))

    def by_layer(self, key: str, count: int, default: Sequence[int] = ()) -> list[int]:
        """An integer for each layer, of a list or one for all; zeros where a list ends."""
        listed = self.integers(key)
        if not listed and f"{self.architecture}.{key}" in self.metadata:
            return [self.integer(key)] * count
        return [*(listed or default), *[0] * count][:count]

    @property
    def expert_share(self) -> float:
        """Share of a layer's routed experts that one token uses; 1 without experts."""
        used, experts = self.integer("expert_used_count"), self.integer("expert_count")
        return used / experts if used < experts else 1.0

    @property
    def n_vocab(self) -> int:
        return self.array_lengths.get(_TOKENS, 0)

    @property
    def can_spell_any_text(self) -> bool:
        """Whether a SentencePiece vocabulary has a token for each byte; other kinds need none."""
        if self.metadata.get("tokenizer.ggml.model") != "llama" or not self.n_vocab:
            return True
        return self.spelled_bytes | _NEVER_SPELLED == frozenset(range(256))


def parts(path: Path) -> list[Path]:
    """All files of a model: the file itself, or all of NAME-00001-of-0000N.gguf if it is split."""
    split = re.fullmatch(r"(.*-)\d{5}(-of-)(\d{5})(\.gguf)", path.name)
    count = int(split[3]) if split else 0
    if not split or count == 0:
        return [path]
    names = (f"{split[1]}{index:05}{split[2]}{split[3]}{split[4]}" for index in range(1, count + 1))
    return [path.with_name(name) for name in names]


def read_per_token(header: GgufHeader, tensors: Iterable[Tensor]) -> int:
    """Bytes of weights read per plain token.

    Without an input embedding that is only looked up, and without layers that predict ahead.
    header: of the first part; tensors: of all parts.
    """
    last, ahead = header.integer("block_count"), header.integer("nextn_predict_layers")
    sizes = {
        tensor.name: tensor.stored_bytes
        for tensor in tensors
        if not (0 < ahead < last and last - ahead <= _layer(tensor.name) < last)
    }
    if "output.weight" in sizes:
        sizes.pop("token_embd.weight", None)
    share = header.expert_share
    return sum(round(size * (share if "_exps" in name else 1.0)) for name, size in sizes.items())


def _layer(name: str) -> int:
    match = re.match(r"blk\.(\d{1,6})\.", name)
    return int(match[1]) if match else -1


def read_header(path: Path) -> GgufHeader:
    """Read and check the header of a GGUF file.

    Raises:
        IncompleteFileError: the file ends before its last tensor does.
        ModelError: the file is missing, unreadable, not GGUF, cut short or inconsistent.
    """
    with reading(path):
        stat = path.stat()
        return _read(path, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _read(path: Path, size: int, _changed: int) -> GgufHeader:
    """Read a header, cached until its file changes."""
    with open_regular(path) as file:
        if size == 0:
            raise ModelError(f"{path} is empty", "", "Download or copy it again.")
        with briefly_mapped(file) as data:
            return _parse(data, path)


def _parse(data: mmap.mmap, path: Path) -> GgufHeader:
    if data[:4] != b"GGUF":
        raise ModelError(
            f"{path} is not a GGUF file", "it does not start with GGUF", "Give a .gguf model file."
        )
    cursor = Cursor(data)
    cursor.skip(4)
    version = int(cursor.take("<I"))
    if version not in (2, 3):
        raise ValueError(f"GGUF version {version}, where 2 and 3 are known")
    n_tensors = cursor.count(MAX_ENTRIES, "a tensor count")
    n_metadata = cursor.count(MAX_ENTRIES, "a metadata count")
    metadata: dict[str, Scalar] = {}
    array_lengths: dict[str, int] = {}
    arrays: dict[str, tuple[Number, ...]] = {}
    tokens_at = 0
    for _ in range(n_metadata):
        key = cursor.string()
        kind = int(cursor.take("<I"))
        if kind == ARRAY:
            if key == _TOKENS:
                is_texts = data[cursor.at : cursor.at + 4] == struct.pack("<I", STRING)
                tokens_at = cursor.at if is_texts else 0
            numbers = cursor.numbers()
            if numbers:
                arrays[key] = numbers
            array_lengths[key] = cursor.skip_array(are_tokens=key == _TOKENS)
        elif kind == STRING:
            metadata[key] = cursor.string()
        elif kind in SCALARS:
            metadata[key] = cursor.take(SCALARS[kind])
        else:
            raise ValueError(f"an unknown value type {kind}")
    end = cursor.at
    tensors = _tensors(cursor, n_tensors, metadata, path)
    spelled = frozenset(cursor.spelled)
    return GgufHeader(metadata, array_lengths, tensors, arrays, spelled, tokens_at, end)


_PLAIN = {0: 4, 1: 2, 27: 8}
"""Bytes of a number in types that store it as it is: F32, F16, I64."""


def _may_be_cut(tensors: Sequence[tuple[Sequence[int], int, int]], data_size: int) -> bool:
    """Whether the last tensor has fewer bytes than one of its type before it leads to expect.

    Only then are the types' exact sizes needed, which a library has that takes long to load.
    tensors: shape, type and offset of each, in order of offset.
    """
    shape, ggml_type, offset = tensors[-1]
    if size := _PLAIN.get(ggml_type):
        return data_size - offset < prod(shape) * size
    for (other, same_type, begin), (_, _, end) in itertools.pairwise(tensors):
        if same_type == ggml_type and end > begin:
            return data_size - offset < prod(shape) * (end - begin) / max(1, prod(other))
    return True


def _tensors(
    cursor: Cursor, count: int, metadata: dict[str, Scalar], path: Path
) -> tuple[Tensor, ...]:
    entries: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(count):
        name = cursor.string()
        n_dimensions = int(cursor.take("<I"))
        if not 1 <= n_dimensions <= 4:
            raise ValueError(f"a tensor of {n_dimensions} dimensions")
        shape = tuple(int(cursor.take("<Q")) for _ in range(n_dimensions))
        ggml_type = int(cursor.take("<I"))
        entries.append((name, shape, ggml_type, int(cursor.take("<Q"))))
    if not entries:
        return ()
    alignment = int(metadata.get("general.alignment", 32)) or 32
    start = -(-cursor.at // alignment) * alignment
    data_size = len(cursor.data) - start
    by_offset = sorted(entries, key=lambda entry: entry[3])
    if _may_be_cut([entry[1:] for entry in by_offset], data_size):
        complete = data_bytes([entry[1:] for entry in by_offset], alignment)
        if complete is not None and complete > data_size:
            raise IncompleteFileError(path, len(cursor.data), start + complete)
    ends = [entry[3] for entry in by_offset[1:]] + [data_size]
    tensors: list[Tensor] = []
    for (name, shape, ggml_type, offset), end in zip(by_offset, ends, strict=True):
        if offset >= data_size or end > data_size:
            raise ValueError(
                f"tensor {name} lies past the end of the file ({len(cursor.data):,} bytes)"
            )
        tensors.append(Tensor(name, shape, end - offset, ggml_type, start + offset))
    return tuple(tensors)


def read_model(path: Path) -> tuple[GgufHeader, list[Tensor]]:
    """Header of a model's first file, and the tensors of all its parts."""
    headers = [read_header(part) for part in parts(path)]
    return headers[0], [tensor for header in headers for tensor in header.tensors]


MOST_TOKENS = 1 << 20
"""Largest vocabulary that is checked; actual ones have a quarter of that."""


def require_distinct_tokens(path: Path) -> None:
    """Refuse a file with a duplicate token, on which llama.cpp aborts the process.

    Takes 0.1 s for a vocabulary of 260,000, so only files that never ran here are checked.
    """
    if read_header(parts(path)[0]).n_vocab > MOST_TOKENS:
        return
    seen: set[bytes] = set()
    for text in tokens_of(path):
        read = text.partition(b"\0")[0]  # as the engine does
        if read in seen and read:  # the engine gives empty ones unique names
            why = f"its vocabulary has the token {read[:40].decode(errors='replace')!r} twice"
            raise ModelError(f"cannot run {path}", why, "Choose another conversion of the model.")
        seen.add(read)


def tokens_of(path: Path) -> list[bytes]:
    """Texts of a vocabulary by token, empty without one."""
    first = parts(path)[0]
    header = read_header(first)
    if not header.tokens_at:
        return []
    unpack = struct.Struct("<Q").unpack_from
    at = header.tokens_at + struct.calcsize("<IQ")
    texts: list[bytes] = []
    with first.open("rb") as file, briefly_mapped(file) as data:
        for _ in range(header.n_vocab):  # the list was read: it lies within the file
            (size,) = unpack(data, at)
            texts.append(data[at + 8 : at + 8 + size])
            at += 8 + size
    return texts


_COUNT_AT = 8
"""Offset of the number of tensors, behind the magic and the version."""

_PARTS = b"split.count"


def vocabulary_alone(path: Path) -> bytes:
    """A model's metadata as a file of its own, with the tokenizer and the chat template.

    It is what another machine needs to know a model's vocabulary.

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
