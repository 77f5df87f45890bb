"""Writes the changes of a chat to the history; what cannot be written is tried again later."""

from collections.abc import Callable, Mapping

from app.dialogue.tree import ASSISTANT, Queued, Tree, Turn, may_continue, path_to
from app.history import History, HistoryError
from app.history.records import own_writer

_SETTERS: Mapping[str, Callable[[History, int, str], None]] = {
    "title": History.rename,
    "model": History.set_model,
    "system": History.set_system,
    "settings": History.set_settings,
}


class Saver:
    """Unsaved changes of one chat. chat: its number, None until it is created."""

    def __init__(self, history: History, tree: Tree, queue: list[Queued]) -> None:
        self.chat: int | None = None
        self.facts = {"title": "", "model": "", "system": "", "settings": "{}"}
        """What the chat is created with."""
        self.is_outdated = False
        """Whether a save has shown that another window changed what it was to change."""
        self._history, self._tree, self._queue = history, tree, queue
        self._turns: dict[Turn, None] = {}
        self._parents: dict[Turn | None, None] = {}
        self._changed: dict[str, None] = {}
        self._withdrawn: list[int] = []
        self._unqueued: list[int] = []

    @property
    def is_behind(self) -> bool:
        """Whether anything is not written yet."""
        is_queued = any(question.number is None for question in self._queue)
        lists = (self._turns, self._parents, self._changed, self._withdrawn, self._unqueued)
        return is_queued or any(lists)

    def holds(self, turn: Turn) -> bool:
        """Whether a turn has unsaved changes."""
        return turn in self._turns

    def has_changed(self, fact: str) -> bool:
        """Whether a fact of the chat has an unsaved value."""
        return fact in self._changed

    def is_leaving(self, question: int) -> bool:
        """Whether a question of the queue is about to be deleted."""
        return question in self._unqueued

    def put(self, turn: Turn) -> None:
        """Note that a turn was added or has changed."""
        self._turns[turn] = None

    def put_shown(self, parent: Turn | None) -> None:
        """Note that another child of a turn is shown; None: another first question."""
        self._parents[parent] = None

    def put_fact(self, name: str, value: str) -> None:
        """Note a new title, model, system prompt or JSON object of settings."""
        self.facts[name] = value
        if self.chat is not None:
            self._changed[name] = None

    def withdraw(self, turn: Turn) -> None:
        """Note that a turn has left the tree."""
        for gone in (turn, *turn.children):
            self._turns.pop(gone, None)
            self._parents.pop(gone, None)
        if turn.number is not None:
            self._withdrawn.append(turn.number)

    def unqueue(self, question: Queued) -> None:
        """Note that a question has left the queue."""
        if question.number is not None:
            self._unqueued.append(question.number)

    def write(self) -> None:
        """Write all that was noted.

        Raises:
            HistoryError: something cannot be written; it stays noted.
        """
        if self.chat is not None and not self._history.facts(self.chat):
            self.forget()
        if self.chat is None:
            if not (self._queue or any(not _is_empty(turn) for turn in self._turns)):
                self._parents.clear()
                return
            self._create()
        for turn in list(self._turns):
            self._write_turn(turn)
            self._turns.pop(turn, None)
        self._write_queue()
        chat = self._chat()
        while self._withdrawn:
            self._history.withdraw(chat, self._withdrawn[0])
            del self._withdrawn[0]
        for parent in list(self._parents):
            self._write_shown(chat, parent)
            del self._parents[parent]
        for name in list(self._changed):
            _SETTERS[name](self._history, chat, self.facts[name])
            del self._changed[name]
        if not (self._tree.roots or self._queue) and not self._history.facts(chat):
            self.chat = None

    def forget(self) -> None:
        """Note that the chat is gone from the history: all of it that is left here is unsaved."""
        self.chat = None
        self._queue[:] = [Queued(one.text, one.attachments) for one in self._queue]
        self._withdrawn.clear()
        self._unqueued.clear()
        self.put_shown(None)
        for turn in self._tree:
            turn.number = None
            self.put(turn)
            if turn.children:
                self.put_shown(turn)

    def _chat(self) -> int:
        assert self.chat is not None
        return self.chat

    def _create(self) -> None:
        self.chat = self._history.create(**self.facts)
        self._changed.clear()

    def _write_turn(self, turn: Turn) -> None:
        self._write_text(turn)
        if turn.number is not None and turn.tokens and may_continue(turn):
            self._history.keep_tokens(turn.number, turn.tokens)

    def _write_text(self, turn: Turn) -> None:
        writer = own_writer() if turn.is_growing else ""
        if turn.number is not None:
            about = {"lossy": turn.lossy, "writer": writer}
            if self._history.update(turn.number, turn.text, turn.ending, **about):
                return
            turn.number = None  # another window withdrew it, or wrote something else there
            self.is_outdated = True
        if not self._add(turn):
            self._add_lost(turn)

    def _add(self, turn: Turn) -> bool:
        """Add a turn and those before it that are not saved; False if others are lost."""
        for above in path_to(turn):
            if above.number is not None or _is_empty(above):
                continue
            parent = 0 if above.parent is None else above.parent.number or 0
            writer = own_writer() if above.is_growing else ""
            number = self._history.add(
                self._chat(),
                above.role,
                above.text,
                above.ending,
                parent=parent,
                attachments=above.attachments,
                lossy=above.lossy,
                writer=writer,
            )
            if not number:
                return False
            above.number = number
            self._tree.sort_versions(above)
        return True

    def _add_lost(self, turn: Turn) -> None:
        """Add a turn, and again what other windows withdrew before it.

        Raises:
            HistoryError: it cannot be added.
        """
        saved = {message.number for message in self._history.messages(self._chat())}
        for above in path_to(turn):
            if above.number not in saved:
                above.number = None
                self._turns[above] = None
        if not self._add(turn):
            raise HistoryError("cannot save the chat", "other windows are changing it")

    def _write_queue(self) -> None:
        for place, question in enumerate(self._queue):
            if question.number is None:
                number = self._history.enqueue(self._chat(), question.text, question.attachments)
                self._queue[place] = Queued(question.text, question.attachments, number)
        while self._unqueued:
            self._history.unqueue(self._unqueued[0])
            del self._unqueued[0]

    def _write_shown(self, chat: int, parent: Turn | None) -> None:
        child = self._tree.shown_below(parent)
        is_saved = parent is None or parent.number is not None
        if is_saved and (child is None or child.number is not None):
            number = child.number or 0 if child is not None else 0
            self._history.show(chat, 0 if parent is None else parent.number or 0, number)


def _is_empty(turn: Turn) -> bool:
    """Whether an answer has nothing to be saved yet."""
    return turn.role == ASSISTANT and not (turn.text or turn.ending or turn.children)
