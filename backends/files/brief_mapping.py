"""Mapping a file for as long as a block runs."""

import mmap
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import BinaryIO

BRIEFLY_MAPPED = threading.RLock()
"""Held while a file is mapped briefly. Who holds it finds only mappings that stay: what is done to
the addresses of one that has ended, such as dropping its pages, hits whatever lies there by then.
"""


@contextmanager
def briefly_mapped(file: BinaryIO) -> Generator[mmap.mmap]:
    """Map an open file for reading.

    Raises:
        OSError: it cannot be mapped.
        ValueError: it is empty.
    """
    with BRIEFLY_MAPPED, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data
