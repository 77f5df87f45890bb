"""One message of a chat, in the tree of all versions."""

from dataclasses import dataclass, field

from app.chat.attachment import Attachment


@dataclass(slots=True, eq=False)
class Turn:
    """A question or an answer; its children are the versions of what follows it.

    number: its number in the history, None while it is not saved. shown: the child shown last.
    """

    role: str
    text: str
    """As it was typed: attached files and pastes are not part of it."""
    ending: str = ""
    """The line below an answer; empty while it grows, and for good if it was interrupted."""
    attachments: tuple[Attachment, ...] = ()
    number: int | None = None
    parent: "Turn | None" = None
    children: "list[Turn]" = field(default_factory=lambda: [])
    shown: "Turn | None" = None
