"""What the prompt asks the screen to do."""

from textual.message import Message

from app.actions import Action
from app.chat.attachments import Attachment
from app.dialogue.next_request import Typed


class Submitted(Message):
    """A question was sent, or a changed one while editing.

    attachments: its pastes, and files that can no longer be read but were read before. Files that
    exist are not among them: they are read when the question is sent.
    """

    def __init__(
        self, text: str, attachments: tuple[Attachment, ...] = (), *, is_edit: bool = False
    ) -> None:
        super().__init__()
        self.text = text
        self.attachments = attachments
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

    def __init__(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        super().__init__()
        self.text = text
        self.attachments = attachments


class TextChanged(Message):
    """The prompt has got a text, or has lost it."""

    def __init__(self, *, has_text: bool) -> None:
        super().__init__()
        self.has_text = has_text


class TextFollowed(Message):
    """What is typed is known anew, with the files that it names; a few times a second."""

    def __init__(self, typed: Typed) -> None:
        super().__init__()
        self.typed = typed


class EmptySubmitted(Message):
    """The send key on an empty prompt: sends the next queued question, or tries again."""


class TakeBack(Message):
    """The last queued question is wanted back in the prompt."""


class SelectLast(Message):
    """The last message is to be selected, or the last question."""

    def __init__(self, *, is_question: bool) -> None:
        super().__init__()
        self.is_question = is_question


class MoveBelow(Message):
    """The cursor left the empty prompt downwards, with no later text to bring back."""


class ScrollWanted(Message):
    """The conversation is to be scrolled by pages, down if positive."""

    def __init__(self, pages: int) -> None:
        super().__init__()
        self.pages = pages


class ActionKey(Message):
    """The key of an action was pressed in the prompt.

    It comes as a message, so that it is carried out after what was sent before it: a key that
    bubbles up on its own may overtake that.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class EditEnded(Message):
    """Editing was left without a change; the prompt is as it was before."""


class StopRequested(Message):
    """The answer in progress is to be stopped."""


class QuitRequested(Message):
    """The app is to be quit."""
