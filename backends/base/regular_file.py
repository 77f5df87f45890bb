"""Reading untrusted paths: regular files only, without blocking, up to a size limit."""

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
    r"""Read a text file of at most so many bytes, with \r\n converted to \n.

    Raises:
        OSError: as for read_bounded.
        UnicodeDecodeError: it is not UTF-8.
    """
    return read_bounded(path, most).decode().replace("\r\n", "\n")
