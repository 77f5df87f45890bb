"""Reads the header of a GGUF file without an engine, trusting nothing it says.

llama.cpp aborts the process on some broken headers; this reader turns them into an error first,
and gives the figures that need no loading. Format: the GGUF specification of ggml, version 3.
"""

import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from backends.base import ModelError

MAX_ENTRIES = 1 << 20
MAX_ARRAY = 1 << 24
MAX_STRING = 1 << 24

_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i",
    6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor's entry; stored_bytes includes at most one alignment unit of padding."""

    name: str
    shape: tuple[int, ...]
    stored_bytes: int

    @property
    def parameters(self) -> int:
        """How many numbers it holds."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata (scalars only, arrays by their length) and the list of tensors."""

    metadata: dict[str, Scalar]
    array_lengths: dict[str, int]
    tensors: tuple[Tensor, ...]

    @property
    def architecture(self) -> str:
        """The family of the model, such as llama."""
        return str(self.metadata.get("general.architecture", ""))

    def integer(self, key: str, default: int = 0) -> int:
        """A whole number of this architecture, such as block_count."""
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        return int(value) if isinstance(value, int) else default


def parts(path: Path) -> list[Path]:
    """All files of a model: itself, or its siblings NAME-00001-of-0000N.gguf where it is split."""
    split = re.fullmatch(r"(.*-)\d{5}(-of-)(\d{5})(\.gguf)", path.name)
    count = int(split[3]) if split else 0
    if not split or count == 0:
        return [path]
    names = (f"{split[1]}{index:05}{split[2]}{split[3]}{split[4]}" for index in range(1, count + 1))
    return [path.with_name(name) for name in names]


class _Cursor:
    """Reads little-endian values off a buffer, never past its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

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
        return self.data[start : self.at].decode("utf-8", errors="replace")

    def skip_array(self, depth: int = 0) -> int:
        """Step over an array and return its length."""
        kind = int(self.take("<I"))
        size = self.count(MAX_ARRAY, "a list length")
        if kind == _ARRAY and depth > 2:
            raise ValueError("lists nested too deep")
        if kind in _SCALARS:
            self.skip(size * struct.calcsize(_SCALARS[kind]))
        elif kind == _STRING:
            for _ in range(size):
                self.skip(self.count(MAX_STRING, "a text length"))
        elif kind == _ARRAY:
            for _ in range(size):
                self.skip_array(depth + 1)
        else:
            raise ValueError(f"an unknown value type {kind}")
        return size


def read_header(path: Path) -> GgufHeader:
    """Read and check the header of a GGUF file.

    A tensor's own size is not known here: a file cut inside its last one is for the engine to tell.

    Raises:
        ModelError: the file is missing, unreadable, not GGUF, cut short or inconsistent.
    """
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise ModelError(f"{path} is empty", "", "Download or copy it again.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(data, path)
    except FileNotFoundError as error:
        raise ModelError(f"there is no file {path}") from error
    except OSError as error:
        raise ModelError(f"cannot read {path}", error.strerror or str(error)) from error
    except (struct.error, ValueError, OverflowError) as error:
        reason = "it ends inside its header" if isinstance(error, struct.error) else str(error)
        raise ModelError(
            f"{path} is damaged or cut short", reason, "Download or copy it again."
        ) from error


def _parse(data: mmap.mmap, path: Path) -> GgufHeader:
    if data[:4] != b"GGUF":
        raise ModelError(
            f"{path} is not a GGUF file", "it does not start with GGUF", "Give a .gguf model file."
        )
    cursor = _Cursor(data)
    cursor.skip(4)
    version = int(cursor.take("<I"))
    if version not in (2, 3):
        raise ValueError(f"GGUF version {version}, where 2 and 3 are known")
    n_tensors = cursor.count(MAX_ENTRIES, "a tensor count")
    n_metadata = cursor.count(MAX_ENTRIES, "a metadata count")
    metadata: dict[str, Scalar] = {}
    array_lengths: dict[str, int] = {}
    for _ in range(n_metadata):
        key = cursor.string()
        kind = int(cursor.take("<I"))
        if kind == _ARRAY:
            array_lengths[key] = cursor.skip_array()
        elif kind == _STRING:
            metadata[key] = cursor.string()
        elif kind in _SCALARS:
            metadata[key] = cursor.take(_SCALARS[kind])
        else:
            raise ValueError(f"an unknown value type {kind}")
    return GgufHeader(metadata, array_lengths, _tensors(cursor, n_tensors, metadata))


def _tensors(cursor: _Cursor, count: int, metadata: dict[str, Scalar]) -> tuple[Tensor, ...]:
    entries: list[tuple[str, tuple[int, ...], int]] = []
    for _ in range(count):
        name = cursor.string()
        n_dimensions = int(cursor.take("<I"))
        if not 1 <= n_dimensions <= 4:
            raise ValueError(f"a tensor of {n_dimensions} dimensions")
        shape = tuple(int(cursor.take("<Q")) for _ in range(n_dimensions))
        cursor.skip(4)
        entries.append((name, shape, int(cursor.take("<Q"))))
    if not entries:
        return ()
    alignment = int(metadata.get("general.alignment", 32)) or 32
    start = -(-cursor.at // alignment) * alignment
    data_bytes = len(cursor.data) - start
    by_offset = sorted(entries, key=lambda entry: entry[2])
    ends = [entry[2] for entry in by_offset[1:]] + [data_bytes]
    tensors: list[Tensor] = []
    for (name, shape, offset), end in zip(by_offset, ends, strict=True):
        if offset >= data_bytes or end > data_bytes:
            raise ValueError(
                f"tensor {name} lies past the end of the file ({len(cursor.data):,} bytes)"
            )
        tensors.append(Tensor(name, shape, end - offset))
    return tuple(tensors)
