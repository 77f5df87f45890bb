"""Text that belongs to a message without standing in it: a named file, or a long paste."""

from dataclasses import dataclass
from enum import StrEnum


class AttachmentKind(StrEnum):
    """Where the text comes from."""

    FILE = "file"
    PASTE = "paste"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that a message names with @, or a paste that a placeholder in the message stands for.

    name: the file's name as it follows @, or the placeholder, such as "[pasted 42 lines]".
    text: the contents, as they were when the message was sent.
    """

    kind: AttachmentKind
    name: str
    text: str
