"""A question on the screen."""

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from app.chat.attachment import Attachment, AttachmentKind
from app.chat.attachments import pieces
from app.dialogue.turn import Turn
from app.engine.token_counts import CountTokens
from app.printable import printable
from app.tui.conversation.attachment_row import AttachmentRow
from app.tui.conversation.message_view import MessageView


class QuestionView(MessageView):
    """A question as it was typed, with its attachments folded below it."""

    BINDINGS: ClassVar = [Binding("enter", "edit", "edit")]
    DEFAULT_CSS: ClassVar[str] = """
    QuestionView { border-left: outer $primary; background: $boost; padding: 0 0 0 1; }
    QuestionView:focus { border-left: thick $primary; }
    QuestionView .text, QuestionView Horizontal > AttachmentRow { width: 1fr; height: auto; }
    """

    class EditWanted(Message):
        """The question should be edited."""

        def __init__(self, turn: Turn) -> None:
            super().__init__()
            self.turn = turn

    def __init__(self, turn: Turn, count_tokens: CountTokens) -> None:
        super().__init__(turn)
        self._count_tokens = count_tokens

    def compose(self) -> ComposeResult:
        first, *others = self._parts()
        with Horizontal():
            yield first
            yield self._label
        yield from others

    def _parts(self) -> Iterator[Widget]:
        """The text, with a folded line in place of each paste, and one for each file below."""
        text, attachments = self.turn.text, self.turn.attachments
        for piece in pieces(text, attachments):
            if isinstance(piece, Attachment):
                yield AttachmentRow(piece, self._count_tokens)
            elif piece.strip() or piece == text:
                yield Static(Content(printable(_trimmed(piece, text))), classes="text")
        for attachment in attachments:
            if attachment.kind is AttachmentKind.FILE:
                yield AttachmentRow(attachment, self._count_tokens)

    def action_edit(self) -> None:
        """Ask to edit the question."""
        self.post_message(self.EditWanted(self.turn))


def _trimmed(piece: str, text: str) -> str:
    """A piece of a text without the spaces and line breaks that set it off from a paste."""
    return piece if piece == text else piece.strip()
