"""Files: ours are private, replaced whole and checked; others' are read with care."""

import errno
import os
import re
import shutil
import stat
import struct
import sys
import time
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from backends.base.errors import SpecchatError, UsageError

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def private_opener(path: str, flags: int) -> int:
    """Opener for open() that creates files readable by their owner alone."""
    return os.open(path, flags, FILE_MODE)


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents; existing ones keep their permissions."""
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    for path in reversed(missing):
        try:
            path.mkdir(FOLDER_MODE)
        except FileExistsError:
            if not path.is_dir():  # otherwise another process was faster
                raise
        sync_folder(path.parent)


def sync_file(file: BinaryIO) -> None:
    """Wait until the disk has what was written to a file."""
    file.flush()
    if sys.platform == "darwin":
        import fcntl

        with suppress(OSError):  # not on a network disk
            fcntl.fcntl(file.fileno(), fcntl.F_FULLFSYNC)  # fsync stops at the drive's own cache
            return
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder, where a file system lets one wait."""
    if sys.platform == "win32":  # opens no folders, and keeps a log of names itself
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_PIECE_BYTES = 1 << 20
_FLAGS = ("O_BINARY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC")
"""Used where available; with O_NONBLOCK, opening a named pipe does not wait for a writer."""


class NotRegularError(OSError):
    """A folder, a pipe, a device or a socket where a file was expected."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


class TooLargeError(OSError):
    def __init__(self, path: Path, most: int) -> None:
        bound = f"{most >> 20:,} MB" if most >> 20 else f"{most:,} bytes"
        super().__init__(errno.EFBIG, f"it is larger than {bound}", str(path))


class NotTextError(ValueError):
    """Bytes that are not UTF-8 text. fault: such as "is UTF-16"; why: what shows it, and where."""

    def __init__(self, fault: str, why: str) -> None:
        super().__init__(f"it {fault}: {why}")
        self.fault, self.why = fault, why


@contextmanager
def explained(
    what: str, kind: type[SpecchatError] = UsageError, remedy: str = ""
) -> Generator[None]:
    """Raise an error of ours for what the system refuses in the block, or a file that is no text.

    what: happened, for which why is what the system says.
    """
    try:
        yield
    except (OSError, NotTextError) as error:
        raise kind(what, getattr(error, "strerror", "") or str(error), remedy) from error


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; anything else is refused without blocking.

    Raises:
        OSError: it cannot be opened, or is a pipe, a device, a folder or a socket.
    """
    flags = os.O_RDONLY
    for name in _FLAGS:
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, flags)
    except ValueError as error:
        raise OSError(errno.EINVAL, "no file can have this name", repr(str(path))) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegularError(path)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bounded(path: Path, most: int) -> bytes:
    """Read a regular file of at most so many bytes.

    Raises:
        OSError: it cannot be read, is no regular file, or has more than most bytes.
    """
    data = bytearray()
    with open_regular(path) as file:
        while piece := file.read(min(_PIECE_BYTES, most + 1 - len(data))):
            data += piece
            if len(data) > most:
                raise TooLargeError(path, most)
    return bytes(data)


def read_text(path: Path, most: int) -> str:
    """Read a text file of at most so many bytes, as text_of does.

    Raises:
        OSError: as for read_bounded.
        NotTextError: it is not UTF-8 text.
    """
    return text_of(read_bounded(path, most))


def text_of(data: bytes) -> str:
    r"""Decode UTF-8 text, without its byte order mark and with \n for \r\n.

    Raises:
        NotTextError: it is something else; another encoding has bytes or NUL characters that show.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise NotTextError("is UTF-16", "only UTF-8 is read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {data[error.start]:#04x} at position {error.start:,}"
        raise NotTextError("is not UTF-8 text", where) from error
    if (position := text.find("\0")) >= 0:
        raise NotTextError("is not text", f"a NUL character at position {position:,}")
    return text.replace("\r\n", "\n")


# Replacing files whole: written under a temporary name beside them, then renamed.
# The disk has the content before the name changes: a power cut would otherwise leave an empty file.
# A temporary name ends in the number of the writing process, so that files left by killed processes
# can be told from those still being written.

_TEMPORARY_NAME = re.compile(r"\..+\.(\d+)")
_LEFTOVER_SECONDS = 60.0
"""Longer than a file of ours goes unmodified while it is written: its process may run in another
container, where it cannot be seen from here."""


def temporary_beside(path: Path) -> Path:
    """Temporary path under which this process writes the next content of a file."""
    return path.with_name(f".{path.name}.{os.getpid()}")


@contextmanager
def replacing(path: Path, *, is_private: bool = True) -> Generator[BinaryIO]:
    """Write a file that replaces the one at path when the block ends without an exception.

    Links are followed. is_private: readable by the owner alone, from the first byte; otherwise a
    person named it: it keeps its mode, and what is no regular file is written into.

    Raises:
        OSError: it cannot be written; the old file is untouched.
    """
    if not is_private and path.exists() and not path.is_file():  # a pipe or a device
        with open(path, "wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    temporary = temporary_beside(path)
    try:
        temporary.unlink(missing_ok=True)  # left by a killed process, perhaps readable by all
        with open(temporary, "xb", opener=private_opener if is_private else None) as file:
            yield file
        if not is_private:
            with suppress(OSError):
                shutil.copymode(path, temporary)
        put_in_place(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def put_in_place(written: Path, path: Path) -> Path:
    """Rename a file that was written whole; a power cut leaves the old or the new one at path.

    Raises:
        OSError: it cannot be written out or renamed; the old file is untouched.
    """
    with open(written, "r+b") as file:  # Windows flushes only files opened for writing
        sync_file(file)
    written.replace(path)
    sync_folder(path.parent)
    return path


def write_whole(path: Path, content: bytes | str, *, is_private: bool = True) -> None:
    """Replace a file's content, or leave the file untouched.

    Text is written as UTF-8 with its unpaired surrogates replaced. Links and is_private: as for
    replacing.
    """
    data = content.encode(errors="replace") if isinstance(content, str) else content
    with replacing(path, is_private=is_private) as file:
        file.write(data)


def remove_leftovers(root: Path) -> None:
    """Remove temporary files of killed processes: below a folder, or root if it is such a file."""
    below = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    for path in below if root.is_dir() else (root,):
        if match := _TEMPORARY_NAME.fullmatch(path.name):
            with suppress(OSError):
                modified = path.stat().st_mtime
                is_old = time.time() - modified > _LEFTOVER_SECONDS
                if is_old and not _may_be_writing(int(match[1]), modified):
                    path.unlink()


def _may_be_writing(process: int, modified: float) -> bool:
    """Whether a process was already running at this time; a later one only reuses the number."""
    import psutil

    try:
        return psutil.Process(process).create_time() <= modified
    except (psutil.NoSuchProcess, OverflowError, ValueError):
        return False
    except psutil.Error:
        return True


# Layout and integrity checks of our binary files.
# Every file starts with a magic of eight bytes, whose last character is the version of its format.
# Sealed files are read whole: magic, CRC-32 of the rest (little-endian), the rest. Tabled files can
# be large: magic and fixed fields, a table, a digest of both, then data that is read where needed;
# sizes are compared with the file's before anything is allocated.

_MAGIC_BYTES = 8
_CRC_BYTES = 4
SEAL_BYTES = _MAGIC_BYTES + _CRC_BYTES
"""Bytes of a sealed file before its body."""


class DamagedFileError(Exception):
    """A file whose content is not what was written."""


class OtherVersionError(Exception):
    """A file written in another version of its format."""


def crc32(data: bytes | memoryview) -> bytes:
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "little")


def seal(magic: bytes, body: bytes) -> bytes:
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
        head = self.magic + self.fields.pack(*fields) + table
        return head + self.digest(head)

    def data_offset(self, table_bytes: int) -> int:
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
