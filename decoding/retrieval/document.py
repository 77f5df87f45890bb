"""A text said before, as tokens, and what an index notes of it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STAMP_BYTES = 16


@dataclass(frozen=True, slots=True)
class Note:
    """What tells documents and their versions apart.

    number: of the document, whatever its version. stamp: of the version, 16 bytes. said: when it
    was said, and indexed: when this version was indexed, in seconds since 1970.
    """

    number: int
    stamp: bytes
    said: float
    indexed: float


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A note with its tokens, in the order they were said."""

    note: Note
    tokens: NDArray[np.uint32]
