"""One message of a chat, in the tree of all versions."""

from dataclasses import dataclass, field

from app.chat.attachment import Attachment
from app.chat.attachments import in_full
from app.continuation import CONTINUES

USER, ASSISTANT = "user", "assistant"


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
    tokens: tuple[int, ...] = ()
    """Tokens of an answer, as far as they are known: what is continued."""
    number: int | None = None
    parent: "Turn | None" = field(default=None, repr=False)
    children: "list[Turn]" = field(default_factory=lambda: [], repr=False)
    shown: "Turn | None" = field(default=None, repr=False)
    lossy: str = ""
    """Name of the lossy rule of an answer without an ending; empty if it is lossless."""
    is_growing: bool = False
    """Whether an app writes this answer now, this one or another."""

    @property
    def is_interrupted(self) -> bool:
        """Whether an answer ends where the app that wrote it was killed."""
        return self.role == ASSISTANT and not self.ending and not self.is_growing


def may_continue(turn: Turn) -> bool:
    """Whether an answer has come to an end that was not its own."""
    return not turn.is_growing and (not turn.ending or turn.ending.endswith(CONTINUES))


def full_text(turn: Turn) -> str:
    """What the model reads: files, then the text with pastes in place of their placeholders."""
    return in_full(turn.text, turn.attachments)


def path_to(turn: Turn) -> list[Turn]:
    """What leads to a turn, first question first, and the turn."""
    path: list[Turn] = []
    above: Turn | None = turn
    while above is not None:
        path.append(above)
        above = above.parent
    return path[::-1]
