"""What stands in the prompt."""

from dataclasses import dataclass

from app.chat.attachment import Attachment


@dataclass(frozen=True, slots=True)
class PromptText:
    """A text as it is typed, and the contents of its folded pastes and named files."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
