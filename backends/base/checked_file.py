"""Layout and integrity checks of our binary files.

Every file starts with a magic of eight bytes, whose last character is the version of its format.
Sealed files are read whole: magic, CRC-32 of the rest (little-endian), the rest. Tabled files can
be large: magic and fixed fields, a table, a digest of both, then data that is read where needed;
sizes are compared with the file's before anything is allocated.
"""

import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

_MAGIC_BYTES = 8
_CRC_BYTES = 4
SEAL_BYTES = _MAGIC_BYTES + _CRC_BYTES
"""Bytes of a sealed file before its body."""


class DamagedFileError(Exception):
    """A file whose content is not what was written."""


class OtherVersionError(Exception):
    """A file written in another version of its format."""


def crc32(data: bytes | memoryview) -> bytes:
    """CRC-32 as four little-endian bytes."""
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "little")


def seal(magic: bytes, body: bytes) -> bytes:
    """Content of a sealed file."""
    return magic + crc32(body) + body


def unseal(magic: bytes, content: bytes) -> memoryview:
    """Body of a sealed file.

    Raises:
        DamagedFileError: the content is damaged.
        OtherVersionError: it has another version.
    """
    _check_magic(content, magic)
    body = memoryview(content)[SEAL_BYTES:]
    if content[_MAGIC_BYTES:SEAL_BYTES] != crc32(body):
        raise DamagedFileError
    return body


@dataclass(frozen=True, slots=True)
class TabledFormat:
    """Format of a file with fixed fields, a table, a digest of all before it, and data."""

    magic: bytes
    fields: struct.Struct
    """The fields after the magic."""
    digest: Callable[[bytes], bytes]

    def head(self, fields: tuple[Any, ...], table: bytes) -> bytes:
        """Bytes of a file before its data."""
        head = self.magic + self.fields.pack(*fields) + table
        return head + self.digest(head)

    def data_offset(self, table_bytes: int) -> int:
        """Where the data begins."""
        return _MAGIC_BYTES + self.fields.size + table_bytes + len(self.digest(b""))

    def read_head(
        self, file: BinaryIO, sizes: Callable[..., tuple[int, int]]
    ) -> tuple[tuple[Any, ...], bytes]:
        """Fields and table of a file open at its start; its data is not read.

        sizes: bytes of the table and of the data, given the fields.

        Raises:
            DamagedFileError: the file has another size, or its head is damaged.
            OtherVersionError: it has another version.
            OSError: it cannot be read.
        """
        start = file.read(_MAGIC_BYTES + self.fields.size)
        if len(start) < _MAGIC_BYTES + self.fields.size:
            raise DamagedFileError
        _check_magic(start, self.magic)
        fields = self.fields.unpack_from(start, _MAGIC_BYTES)
        table_bytes, data_bytes = sizes(*fields)
        if os.fstat(file.fileno()).st_size != self.data_offset(table_bytes) + data_bytes:
            raise DamagedFileError
        table = file.read(table_bytes)
        digest = self.digest(start + table)
        if file.read(len(digest)) != digest:
            raise DamagedFileError
        return fields, table


def _check_magic(content: bytes, magic: bytes) -> None:
    start = content[:_MAGIC_BYTES]
    if start == magic:
        return
    is_ours = len(start) == len(magic) and start[:-1] == magic[:-1]
    raise OtherVersionError if is_ours else DamagedFileError
