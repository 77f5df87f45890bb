"""Text that belongs to a message without standing in it: a named file, or a long paste."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, cast


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

    @classmethod
    def of(cls, kind: str, name: str, text: str) -> "Attachment":
        """Attachment as stored; an unknown kind becomes a file, which is shown with its name."""
        is_paste = kind == AttachmentKind.PASTE
        return cls(AttachmentKind.PASTE if is_paste else AttachmentKind.FILE, name, text)


def as_json(attachments: Sequence[Attachment]) -> str:
    """Attachments as a JSON list."""
    return json.dumps([asdict(one) for one in attachments], ensure_ascii=False)


def from_json(text: str) -> tuple[Attachment, ...]:
    """Attachments of a JSON list; damaged ones are left out."""
    try:
        rows: object = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(rows, list):
        return ()
    found: list[Attachment] = []
    for row in cast("list[object]", rows):
        if isinstance(row, dict):
            fields = cast("dict[str, Any]", row)
            found.append(Attachment.of(*(str(fields.get(key, "")) for key in _KEYS)))
    return tuple(found)


_KEYS = ("kind", "name", "text")
