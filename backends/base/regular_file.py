"""Reading untrusted paths: regular files only, without blocking, within a size, and as text."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_PIECE_BYTES = 1 << 20
_FLAGS = ("O_BINARY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC")
"""Used where available; with O_NONBLOCK, opening a named pipe does not wait for a writer."""


class NotRegularError(OSError):
    """A folder, a pipe, a device or a socket where a file was expected."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


class TooLargeError(OSError):
    """A file larger than any genuine one of its kind."""

    def __init__(self, path: Path, most: int) -> None:
        bound = f"{most >> 20:,} MB" if most >> 20 else f"{most:,} bytes"
        super().__init__(errno.EFBIG, f"it is larger than {bound}", str(path))


class NotTextError(ValueError):
    """Bytes that are not UTF-8 text. fault: such as "is UTF-16"; why: what shows it, and where."""

    def __init__(self, fault: str, why: str) -> None:
        super().__init__(f"it {fault}: {why}")
        self.fault, self.why = fault, why


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
