"""The conversation behind the screen: what was said, and where it is kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.attachments import without_files
from app.conversation import Conversation
from app.history import History, HistoryError
from app.history.export import write_export
from app.settings.answering import restored, stored
from app.settings.catalogue import Value
from backends.base import UsageError
from backends.chat_template import Message


@dataclass(slots=True)
class Turn:
    """One message. number: in the history, None while it is not kept."""

    role: str
    text: str
    ending: str = ""
    number: int | None = None


class Dialogue:
    """Turns in order, saved as they come; what cannot be saved goes on unsaved.

    own: what is set for this chat alone. fault: why the last save failed, empty while all is kept.
    forgotten: how many of the first turns the model no longer sees.
    """

    def __init__(self, history: History | None, system: str = "", model: str = "") -> None:
        self.history = history
        self.system = system
        self.model = model
        self.own: dict[str, Value] = {}
        self.turns: list[Turn] = []
        self.chat: int | None = None
        self.fault = ""
        self.forgotten = 0

    def add(self, role: str, text: str) -> Turn:
        """Append a turn and save it."""
        turn = Turn(role, text)
        self.turns.append(turn)
        self.save(turn)
        return turn

    def save(self, turn: Turn) -> None:
        """Keep a turn as it now stands, and those before it that could not be kept."""
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
        """What was asked lately in any chat, as it was typed, oldest first."""
        try:
            found = self.history.questions() if self.history is not None else []
        except HistoryError as error:
            self.fault = str(error)
            return []
        return [without_files(text) for text in found]

    def cut(self, index: int) -> None:
        """Forget the turn at index and all after it."""
        self.forgotten = 0
        gone = self.turns[index:]
        del self.turns[index:]
        if self.history is None or self.chat is None:
            return
        try:
            if gone and gone[0].number is not None:
                self.history.cut(self.chat, gone[0].number)
        except HistoryError as error:
            self.fault = str(error)

    def open(self, chat: int) -> None:
        """Go on with a chat that was kept.

        Raises:
            HistoryError: it cannot be read.
        """
        assert self.history is not None
        found = self.history.chat(chat)
        self.turns = [
            Turn(saved.role, saved.text, saved.ending, saved.number)
            for saved in self.history.messages(chat)
        ]
        self.chat, self.system, self.model = chat, found.system, found.model
        self.own = restored(self.history.settings(chat))
        self.forgotten = 0

    def fresh(self) -> "Dialogue":
        """A new chat beside this one, told the same first and with the same settings."""
        dialogue = Dialogue(self.history, self.system, self.model)
        dialogue.own = dict(self.own)
        return dialogue

    def rename(self, title: str) -> None:
        """Give the chat a title.

        Raises:
            HistoryError: it cannot be kept.
        """
        if self.history is not None and self.chat is not None and title:
            self.history.rename(self.chat, title)

    def set_system(self, text: str) -> None:
        """Set what the model is told first, from the next answer on.

        Raises:
            HistoryError: it cannot be kept.
        """
        self.system = text
        if self.history is not None and self.chat is not None:
            self.history.set_system(self.chat, text)

    def set_model(self, name: str) -> None:
        """Note which model answers."""
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
        """Set what holds for this chat alone, from the next answer on.

        Raises:
            HistoryError: it cannot be kept.
        """
        self.own = dict(own)
        if self.history is not None and self.chat is not None:
            self.history.set_settings(self.chat, stored(self.own))

    def export(self, path: Path) -> Path:
        """Write the chat to a file; returns its full path.

        Raises:
            UsageError: there is nothing to write, or the file is of another kind.
            HistoryError: it cannot be written.
        """
        if self.history is None or self.chat is None:
            raise UsageError("there is nothing to export yet")
        if path.exists():
            raise UsageError(f"{path} is there already", "", "Name another file, or delete it.")
        return write_export(self.history, self.chat, path)

    def last(self, role: str) -> int | None:
        """The place of the last turn of a role."""
        places = [place for place, turn in enumerate(self.turns) if turn.role == role]
        return places[-1] if places else None

    def conversation(self, end: int) -> Conversation:
        """What the model is told: the turns before end that it still sees."""
        seen = self.turns[self.forgotten : end]
        return Conversation(self.system, [Message(one.role, one.text) for one in seen if one.text])

    def forget(self, dropped: int) -> None:
        """As many of the oldest turns of the last conversation left the context, for good.

        What follows begins with the same turns then, so that the prompt cache holds.
        """
        while dropped > 0:
            dropped -= bool(self.turns[self.forgotten].text)
            self.forgotten += 1
