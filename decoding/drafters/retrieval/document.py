"""An indexed text as tokens, with its metadata."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STAMP_BYTES = 16


@dataclass(frozen=True, slots=True)
class Note:
    """Metadata of a version of a document.

    number: identifies the document. stamp: identifies the version, 16 bytes. written_at: when the
    text was written, and indexed: when this version was indexed, in seconds since 1970.
    """

    number: int
    stamp: bytes
    written_at: float
    indexed: float


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A text's tokens in order, with their metadata."""

    note: Note
    tokens: NDArray[np.uint32]
