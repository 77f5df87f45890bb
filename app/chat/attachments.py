"""What belongs to a message without standing in it, and what the model reads of both."""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from app.printable import one_line
from app.values import items, mapping, parsed
from backends.base import UsageError
from backends.base.images import Image, image_of


class AttachmentKind(StrEnum):
    FILE = "file"
    PASTE = "paste"
    PASSAGE = "passage"
    CALL = "call"
    IMAGE = "image"


OUTPUT = "[$ "
"""How placeholders of what a shell command wrote begin."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that a message names with @, or a paste that a placeholder in the message stands for.

    A passage is a part of a file that was found for the message. name: the file's name as it
    follows @; the placeholder, such as "[pasted 42 lines]"; or a passage's number in the chat and
    its place, such as "[3] notes/plan.md, lines 12 to 40" or "[4] report.pdf, page 7".
    Of a call, whose message's text is its result: the tool's name, and as text its arguments.
    text: the contents, as they were when the message was sent. An image is a named file too; its
    text tells what it is.
    """

    kind: AttachmentKind
    name: str
    text: str
    image: Image | None = None

    @classmethod
    def of(cls, kind: str, name: str, text: str) -> "Attachment":
        """Attachment as stored; an unknown kind becomes a file, which is shown with its name."""
        known = AttachmentKind(kind) if kind in [*AttachmentKind] else AttachmentKind.FILE
        if known is AttachmentKind.IMAGE:
            try:
                return cls.of_image(name, b64decode(text))
            except (ValueError, UsageError):
                return cls(known, name, "a damaged image")
        return cls(known, name, text)

    @classmethod
    def of_image(cls, name: str, data: bytes) -> "Attachment":
        """An image with its file's contents. Raises UsageError: it cannot be read."""
        image = image_of(data, name)
        return cls(AttachmentKind.IMAGE, name, str(image), image)

    @property
    def stored(self) -> dict[str, str]:
        """What `of` makes it of again; an image is base64."""
        text = b64encode(self.image.data).decode() if self.image else self.text
        return {"kind": self.kind, "name": self.name, "text": text}

    @property
    def is_named(self) -> bool:
        """Whether it is a file that the message names with @."""
        return self.kind in (AttachmentKind.FILE, AttachmentKind.IMAGE)

    @property
    def title(self) -> str:
        """Its name on the screen."""
        return one_line(self.name.strip("[]") if self.kind is AttachmentKind.PASTE else self.name)


Attachments = tuple[Attachment, ...]


def as_json(attachments: Sequence[Attachment]) -> str:
    return json.dumps([one.stored for one in attachments], ensure_ascii=False)


def from_json(text: str) -> tuple[Attachment, ...]:
    """Attachments of a JSON list; damaged ones are left out."""
    known = filter(None, map(mapping, items(parsed(text))))
    fields = ([str(row.get(key, "")) for key in ("kind", "name", "text")] for row in known)
    return tuple(Attachment.of(*one) for one in fields)


# What the model reads of a message: the files that it names, then its text with folded pastes.
#
# The files come first so that they can be read before the text is complete.


def in_full(text: str, attachments: Sequence[Attachment]) -> str:
    """A message as the model reads it: files and passages, then its text, pastes in place."""
    of_call = [block(one) for one in attachments if one.kind is AttachmentKind.CALL]
    files = [block(one) for one in attachments if one.is_named]
    passages = [block(one) for one in attachments if one.kind is AttachmentKind.PASSAGE]
    told = [CITE, *passages] if passages else []
    said = with_pastes(text, attachments)
    said = fenced(said) if of_call else said
    return "\n\n".join([*of_call, *files, *told, *filter(None, [said])])


CITE = "Passages found for the question; cite those that the answer is taken from, such as [1]:"
"""What the model reads before them."""


def block(file: Attachment) -> str:
    """A file or passage as it is added to a message: in a fence that nothing in it ends."""
    name = Path(file.name).name if file.is_named else file.name
    return f"{one_line(name)}:\n{file.image.marker if file.image else fenced(file.text)}"


def fenced(text: str) -> str:
    text, fence = text.rstrip("\n"), "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def with_pastes(text: str, attachments: Sequence[Attachment]) -> str:
    """A message with each paste in place of its placeholder; a command's output is in a fence.

    A paste whose placeholder was deleted is left out.
    """
    return "".join(
        piece if isinstance(piece, str) else _in_place(piece) for piece in pieces(text, attachments)
    )


def _in_place(paste: Attachment) -> str:
    is_output = paste.name.startswith(OUTPUT)
    return f"\n{fenced(paste.text)}\n" if is_output else paste.text


def pieces(text: str, attachments: Sequence[Attachment]) -> list[str | Attachment]:
    """A message in pieces: its text, and each paste where its placeholder stood.

    Equal placeholders are taken in order.
    """
    waiting: dict[str, list[Attachment]] = {}
    for one in attachments:
        if one.kind is AttachmentKind.PASTE and one.name:
            waiting.setdefault(one.name, []).append(one)
    if not waiting:
        return [text]
    names = "|".join(map(re.escape, sorted(waiting, key=len, reverse=True)))
    parts: list[str | Attachment] = []
    for part in re.split(f"({names})", text):
        pastes = waiting.get(part)
        parts.append(pastes.pop(0) if pastes else part)
    return [part for part in parts if part] or [text]
