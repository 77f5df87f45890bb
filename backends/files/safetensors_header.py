"""Reading the header of an untrusted safetensors file without an engine.

Format: eight bytes of length, little-endian, then a JSON object of the tensors, then their data.
"""

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, cast

from backends.base import ModelError
from backends.base.safe_files import open_regular

MAX_HEADER = 1 << 21
"""Most bytes of a header; models have about 100 per tensor."""

_MAX_DIMENSIONS = 8
_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2,
          "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
          "C64": 8}  # fmt: skip
"""Bytes of a number by type; lengths of other types are not checked."""
_REMEDY = "Download or copy it again."


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A stored tensor. dtype: as the format names it. offset: of its data in the file."""

    bytes: int
    dtype: str
    shape: tuple[int, ...]
    offset: int


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """Tensors of a file by name.

    Raises:
        ModelError: the file is missing, unreadable, cut short or inconsistent.
    """
    try:
        size = path.stat().st_size
        with open_regular(path) as file:
            length = struct.unpack("<Q", file.read(8))[0]
            if length > min(MAX_HEADER, size - 8):
                raise ValueError(f"a header of {length:,} bytes in a file of {size:,}")
            header = json.loads(file.read(length))
        return _tensors(header, 8 + length, size)
    except FileNotFoundError as error:
        raise ModelError(f"no file {path}") from error
    except OSError as error:
        raise ModelError(f"cannot read {path}", error.strerror or str(error)) from error
    except (struct.error, ValueError, RecursionError) as error:
        reason = "it ends inside its header" if isinstance(error, struct.error) else str(error)
        raise ModelError(f"{path} is damaged or cut short", reason, _REMEDY) from error


def _tensors(header: object, start: int, size: int) -> dict[str, StoredTensor]:
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    entries = cast("dict[str, object]", header)
    return {
        name: _checked(name, entry, start, size - start)
        for name, entry in entries.items()
        if name != "__metadata__"
    }


def _checked(name: str, entry: object, begin: int, data_bytes: int) -> StoredTensor:
    shown = repr(name[:64])
    facts = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    offsets, shape = facts.get("data_offsets"), facts.get("shape")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"tensor {shown} has no place")
    if not _are_counts(shape) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f"tensor {shown} has no shape")
    start, end = offsets
    if not start <= end <= data_bytes:
        raise ValueError(f"tensor {shown} lies past the end of the file")
    dtype = str(facts.get("dtype"))
    size = _SIZES.get(dtype)
    if size is not None and size * math.prod(shape) != end - start:
        raise ValueError(f"tensor {shown} has {end - start:,} bytes, which is not its shape")
    return StoredTensor(end - start, dtype, tuple(shape), begin + start)


def _are_counts(value: object) -> TypeGuard[list[int]]:
    if not isinstance(value, list):
        return False
    return all(type(item) is int and item >= 0 for item in cast("list[object]", value))
