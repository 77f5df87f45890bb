"""A question on the screen."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from app.dialogue.turn import Turn
from app.printable import printable
from app.tui.conversation.attachment_row import AttachmentRow, CountTokens
from app.tui.conversation.message_view import MessageView


class QuestionView(MessageView):
    """A question as it was typed, with its attachments folded below it."""

    BINDINGS: ClassVar = [Binding("enter", "edit", "edit")]
    DEFAULT_CSS: ClassVar[str] = """
    QuestionView { border-left: outer $primary; background: $boost; padding: 0 0 0 1; }
    QuestionView:focus { border-left: thick $primary; }
    QuestionView .text { width: 1fr; height: auto; }
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
        with Horizontal():
            yield Static(Content(printable(self.turn.text)), classes="text")
            yield self._label
        for attachment in self.turn.attachments:
            yield AttachmentRow(attachment, self._count_tokens)

    def action_edit(self) -> None:
        """Ask to edit the question."""
        self.post_message(self.EditWanted(self.turn))
