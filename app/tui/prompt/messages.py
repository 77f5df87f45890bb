"""What the prompt tells the screen."""

from textual.message import Message

from app.actions import Action
from app.dialogue.next_request import Typed
from app.tui.prompt.folding import PromptText


class Submitted(Message):
    """A question was sent, or a changed one while editing.

    Its attachments are pastes, and files that can no longer be read but were read before. Files
    that exist are not among them: they are read when the question is sent.
    """

    def __init__(self, written: PromptText, *, is_edit: bool = False) -> None:
        super().__init__()
        self.written = written
        self.is_edit = is_edit


class CommandPicked(Message):
    """A slash command was sent or picked. text: as typed, to be written back if it fails."""

    def __init__(self, action: Action, argument: str, text: str) -> None:
        super().__init__()
        self.action = action
        self.argument = argument
        self.text = text


class Cleared(Message):
    """A text was cleared without being sent; it is among the earlier ones."""

    def __init__(self, written: PromptText) -> None:
        super().__init__()
        self.written = written


class TextFollowed(Message):
    """What is typed is known anew, with the files that it names; a few times a second."""

    def __init__(self, typed: Typed) -> None:
        super().__init__()
        self.typed = typed
