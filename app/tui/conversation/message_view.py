"""One message of a chat on the screen."""

from typing import ClassVar

from textual.binding import Binding
from textual.containers import Vertical
from textual.message import Message

from app.dialogue.turn import Turn
from app.tui.answer_text.laid_out_once import LaidOutOnce
from app.tui.conversation.versions_label import VersionsLabel


class MessageView(LaidOutOnce, Vertical, can_focus=True):
    """A question or an answer, of which one version is shown; the focus selects it."""

    BINDINGS: ClassVar = [
        Binding("left", "version(-1)", "earlier version"),
        Binding("right", "version(1)", "later version"),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    MessageView { height: auto; max-width: 120; margin: 0 0 1 1; }
    MessageView.-outside, MessageView.-after-edited { opacity: 55%; }
    MessageView Horizontal { height: auto; }
    """

    class VersionWanted(Message):
        """Another version of a turn should be shown: step 1 for the next, -1 for the one before."""

        def __init__(self, turn: Turn, step: int) -> None:
            super().__init__()
            self.turn = turn
            self.step = step

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        self._versions = 1
        self._label = VersionsLabel()

    @property
    def has_versions(self) -> bool:
        """Whether there are other versions."""
        return self._versions > 1

    def show_versions(self, place: int, count: int) -> None:
        """Show which version this is, from 1, and how many there are."""
        self._versions = count
        self._label.show(place, count)
        self.set_class(count == 1, "-only")

    def action_version(self, step: int) -> None:
        """Ask for another version."""
        self.post_message(self.VersionWanted(self.turn, step))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        return action != "version" or self._versions > 1
