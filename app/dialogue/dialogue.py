"""A chat: its tree of messages, its settings and its queue, each saved as it changes."""

from collections.abc import Mapping
from pathlib import Path

from app.chat.attachment import Attachment
from app.chat.conversation import Conversation
from app.dialogue.queued import Queued
from app.dialogue.tree import Tree
from app.dialogue.turn import ASSISTANT, USER, Turn, full_text
from app.history import History
from app.history.chat import title_of
from app.settings.catalogue import Value
from backends.base import UsageError
from backends.chat.chat_template import Message

Attachments = tuple[Attachment, ...]


class Dialogue:
    """One chat. A failed save does not stop it: what could not be saved is saved later.

    own: settings of this chat alone. fault: why the last save failed, empty if it succeeded.
    dropped: how many of the first turns no longer fit the model's context.
    """

    def __init__(self, history: History | None, defaults_system: str = "", model: str = "") -> None:
        self.history = history
        self.chat: int | None = None
        self.system = self._defaults_system = defaults_system
        self.model = model
        self.own: dict[str, Value] = {}
        self.queue: list[Queued] = []
        self.fault = ""
        self.dropped = 0
        self._tree = Tree()
        self._name = ""

    @property
    def turns(self) -> list[Turn]:
        """The path shown, first question first; read only."""
        return self._tree.path

    @property
    def title(self) -> str:
        """The name that the user gave the chat, else its first question shown; empty if new."""
        first = self._tree.root
        return self._name or (title_of(first.text) if first and first.role == USER else "")

    # Turns

    def versions(self, turn: Turn) -> list[Turn]:
        """The turn and its other versions, oldest first; read only."""
        return self._tree.versions(turn)

    def add(self, role: str, text: str, attachments: Attachments = ()) -> Turn:
        """Add a turn below the last one shown, and save it."""
        parent = self.turns[-1] if self.turns else None
        return self._added(Turn(role, text, attachments=attachments, parent=parent))

    def add_version(self, turn: Turn, text: str, attachments: Attachments = ()) -> Turn:
        """Add another version of a turn, show it and save it."""
        self.dropped = 0
        return self._added(Turn(turn.role, text, attachments=attachments, parent=turn.parent))

    def _added(self, turn: Turn) -> Turn:
        turn.is_growing = turn.role == ASSISTANT
        self._tree.add(turn)
        self.save(turn)
        return turn

    def show(self, turn: Turn) -> None:
        """Show a version with what leads to it and what was last shown below it."""
        self.dropped = 0
        self._tree.show(turn)

    def save(self, turn: Turn) -> None:
        """Save a turn; an answer with an ending no longer grows."""
        turn.is_growing = turn.role == ASSISTANT and not turn.ending

    def withdraw(self, turn: Turn) -> None:
        """Remove a question without an answer, or an answer without text; others stay."""
        if _has_answer(turn):
            return
        self.dropped = 0
        self._tree.remove(turn)

    # The queue

    def enqueue(self, text: str, attachments: Attachments = ()) -> None:
        """Append a question to the queue, and save it."""
        self.queue.append(Queued(text, attachments))

    def take_back(self) -> Queued | None:
        """Remove and return the last question of the queue."""
        return self.queue.pop() if self.queue else None

    def next_queued(self) -> Queued | None:
        """Remove and return the first question of the queue, to be added as a turn."""
        return self.queue.pop(0) if self.queue else None

    # The chat

    def rename(self, title: str) -> None:
        """Give the chat a name; with an empty one its first question names it."""
        self._name = title

    def set_system(self, text: str) -> None:
        """Set the system prompt, from the next answer on."""
        self.system = text

    def set_own(self, own: Mapping[str, Value]) -> None:
        """Replace the settings of this chat alone, from the next answer on."""
        self.own = dict(own)

    def set_model(self, name: str) -> None:
        """Record which model answers."""
        self.model = name

    def fresh(self) -> "Dialogue":
        """A new chat with the default system prompt and settings."""
        return Dialogue(self.history, self._defaults_system, self.model)

    def open(self, chat: int) -> None:
        """Load a saved chat.

        Raises:
            HistoryError: it cannot be read.
        """

    def refresh(self) -> bool:
        """Take over what other windows wrote to this chat; returns whether anything changed."""
        return False

    def export(self, path: Path) -> Path:
        """Write the path shown to a new file; returns its absolute path.

        Raises:
            UsageError: there is nothing to export, or the file exists or has an unknown suffix.
            HistoryError: it cannot be written.
        """
        raise UsageError("there is nothing to export yet")

    def questions(self) -> list[str]:
        """Recent questions of all chats as they were typed, pastes unfolded, oldest first."""
        return []

    # The prompt

    def conversation(self, end: Turn | None = None) -> Conversation:
        """The prompt for an answer: what leads to a turn, the turn, and no dropped turns.

        end: None for the last turn shown.
        """
        path = self.turns if end is None else _path_to(end)
        return Conversation(
            self.system,
            [Message(turn.role, full_text(turn)) for turn in path[self.dropped :] if turn.text],
        )

    def drop_oldest(self, messages: int) -> None:
        """Leave the oldest messages of the last conversation out of all later ones.

        Later prompts then begin with the same turns, so the prompt cache stays valid.
        """
        while messages > 0 and self.dropped < len(self.turns):
            messages -= bool(self.turns[self.dropped].text)
            self.dropped += 1


def _has_answer(turn: Turn) -> bool:
    if turn.role == ASSISTANT:
        return bool(turn.text)
    return any(child.text or child.children for child in turn.children)


def _path_to(turn: Turn) -> list[Turn]:
    path: list[Turn] = []
    above: Turn | None = turn
    while above is not None:
        path.append(above)
        above = above.parent
    return path[::-1]
