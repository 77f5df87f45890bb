"""The text of a file."""

from dataclasses import dataclass
from pathlib import Path

from backends.base.safe_files import read_text

MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Document:
    """A file as the model reads it.

    text: its text; each page but the last ends with a form feed. kind: what the file is, such as
    "PDF"; empty for text. pages: 0 where it has none.
    """

    text: str
    kind: str = ""
    pages: int = 0


def read(path: Path) -> Document:
    """The text of a file.

    Raises:
        NotTextError, TooLargeError, OSError: it cannot be read.
    """
    return Document(read_text(path, MOST_BYTES))
