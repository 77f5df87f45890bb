"""A question that waits for the answer in progress."""

from dataclasses import dataclass

from app.chat.attachment import Attachment


@dataclass(frozen=True, slots=True)
class Queued:
    """A question to be sent once those before it are answered.

    number: in the history, None if it is not saved.
    """

    text: str
    attachments: tuple[Attachment, ...] = ()
    number: int | None = None
