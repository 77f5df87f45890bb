"""The data of a chat: its turns, its settings and where they are saved."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.chat.attachments import without_files
from app.chat.conversation import Conversation
from app.history import History, HistoryError
from app.history.export import write_export
from app.settings.answering import restored, stored
from app.settings.catalogue import Value
from backends.base import UsageError
from backends.chat.chat_template import Message


@dataclass(slots=True)
class Turn:
    """One message of a chat. number: its number in the history, None while it is not saved."""

    role: str
    text: str
    ending: str = ""
    number: int | None = None


class Dialogue:
    """Turns in order, each saved as it is added; a failed save does not stop the chat.

    own: settings of this chat alone. fault: why the last save failed, empty if it succeeded.
    dropped: how many of the first turns no longer fit the model's context.
    """

    def __init__(self, history: History | None, system: str = "", model: str = "") -> None:
        self.history = history
        self.system = system
        self.model = model
        self.own: dict[str, Value] = {}
        self.turns: list[Turn] = []
        self.chat: int | None = None
        self.fault = ""
        self.dropped = 0

    def add(self, role: str, text: str) -> Turn:
        """Append a turn and save it."""
        turn = Turn(role, text)
        self.turns.append(turn)
        self.save(turn)
        return turn

    def save(self, turn: Turn) -> None:
        """Save a turn, and any turns that could not be saved before."""
        if self.history is None:
            return
        try:
            if turn.number is not None:
                self.history.update(turn.number, turn.text, turn.ending)
            self._add_missing(self.history)
            self.fault = ""
        except HistoryError as error:
            self.fault = str(error)

    def _add_missing(self, history: History) -> None:
        if self.chat is None:
            self.chat = history.create(self.model, self.system, stored(self.own))
        for turn in self.turns:
            if turn.number is None:
                turn.number = history.add(self.chat, turn.role, turn.text, turn.ending)

    def questions(self) -> list[str]:
        """Recent questions of all chats as they were typed, oldest first."""
        try:
            questions = self.history.questions() if self.history is not None else []
        except HistoryError as error:
            self.fault = str(error)
            return []
        return [without_files(text) for text in questions]

    def cut(self, index: int) -> None:
        """Delete the turn at an index and all after it."""
        self.dropped = 0
        deleted = self.turns[index:]
        del self.turns[index:]
        if self.history is None or self.chat is None:
            return
        try:
            if deleted and deleted[0].number is not None:
                self.history.cut(self.chat, deleted[0].number)
        except HistoryError as error:
            self.fault = str(error)

    def open(self, chat: int) -> None:
        """Load a saved chat.

        Raises:
            HistoryError: it cannot be read.
        """
        assert self.history is not None
        saved_chat = self.history.chat(chat)
        self.turns = [
            Turn(saved.role, saved.text, saved.ending, saved.number)
            for saved in self.history.messages(chat)
        ]
        self.chat, self.system, self.model = chat, saved_chat.system, saved_chat.model
        self.own = restored(self.history.settings(chat))
        self.dropped = 0

    def fresh(self) -> "Dialogue":
        """A new chat with the system prompt and the settings of this one."""
        dialogue = Dialogue(self.history, self.system, self.model)
        dialogue.own = dict(self.own)
        return dialogue

    def rename(self, title: str) -> None:
        """Change the title of the chat.

        Raises:
            HistoryError: it cannot be saved.
        """
        if self.history is not None and self.chat is not None and title:
            self.history.rename(self.chat, title)

    def set_system(self, text: str) -> None:
        """Set the system prompt, from the next answer on.

        Raises:
            HistoryError: it cannot be saved.
        """
        self.system = text
        if self.history is not None and self.chat is not None:
            self.history.set_system(self.chat, text)

    def set_model(self, name: str) -> None:
        """Record which model answers."""
        if name == self.model:
            return
        self.model = name
        if self.history is None or self.chat is None:
            return
        try:
            self.history.set_model(self.chat, name)
        except HistoryError as error:
            self.fault = str(error)

    def set_own(self, own: Mapping[str, Value]) -> None:
        """Replace the settings of this chat alone, from the next answer on.

        Raises:
            HistoryError: they cannot be saved.
        """
        self.own = dict(own)
        if self.history is not None and self.chat is not None:
            self.history.set_settings(self.chat, stored(self.own))

    def export(self, path: Path) -> Path:
        """Write the chat to a new file; returns its absolute path.

        Raises:
            UsageError: there is nothing to export, or the file exists or has an unknown suffix.
            HistoryError: it cannot be written.
        """
        if self.history is None or self.chat is None:
            raise UsageError("there is nothing to export yet")
        if path.exists():
            raise UsageError(f"{path} already exists", "", "Choose another name, or delete it.")
        return write_export(self.history, self.chat, path)

    def last(self, role: str) -> int | None:
        """Index of the last turn of a role."""
        indices = [index for index, turn in enumerate(self.turns) if turn.role == role]
        return indices[-1] if indices else None

    def conversation(self, end: int) -> Conversation:
        """The prompt for an answer: the turns before `end` that still fit the context."""
        turns = self.turns[self.dropped : end]
        return Conversation(
            self.system, [Message(turn.role, turn.text) for turn in turns if turn.text]
        )

    def drop_oldest(self, messages: int) -> None:
        """Leave the oldest messages of the last conversation out of all later ones.

        Later prompts then begin with the same turns, so the prompt cache stays valid.
        """
        while messages > 0:
            messages -= bool(self.turns[self.dropped].text)
            self.dropped += 1
