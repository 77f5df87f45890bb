"""Writes the changes of a chat to the history; what cannot be written is tried again later."""

from app.dialogue.tree import ASSISTANT, Tree, Turn, may_continue, path_to
from app.history import History, HistoryError
from app.history.records import Queued, own_writer


class Saver:
    """Unsaved changes of one chat, all of them without a history.

    chat: its number, None until it is created. facts: what it is created with. turns: those that
    were added or have changed. changed: names of facts that have. unqueued: numbers of questions
    that have left the queue. is_outdated: whether a save has shown that another window changed what
    it was to change.
    """

    def __init__(self, history: History | None, tree: Tree, queue: list[Queued]) -> None:
        self.chat: int | None = None
        self.facts = {"title": "", "model": "", "system": "", "settings": "{}", "folder": ""}
        self.turns: dict[Turn, None] = {}
        self.changed: dict[str, None] = {}
        self.unqueued: list[int] = []
        self.is_outdated = False
        self._history, self._tree, self._queue = history, tree, queue
        self._parents: dict[Turn | None, None] = {}
        self._withdrawn: list[int] = []

    @property
    def is_behind(self) -> bool:
        is_queued = any(question.number is None for question in self._queue)
        lists = (self.turns, self._parents, self.changed, self._withdrawn, self.unqueued)
        return is_queued or any(lists)

    def put(self, turn: Turn) -> None:
        self.turns[turn] = None

    def put_shown(self, parent: Turn | None) -> None:
        """Note that another child of a turn is shown; None: another first question."""
        self._parents[parent] = None

    def put_fact(self, name: str, value: str) -> None:
        """Note a new title, model, system prompt or JSON object of settings."""
        self.facts[name] = value
        if self.chat is not None:
            self.changed[name] = None

    def withdraw(self, turn: Turn) -> None:
        for gone in (turn, *turn.children):
            self.turns.pop(gone, None)
            self._parents.pop(gone, None)
        if turn.number is not None:
            self._withdrawn.append(turn.number)

    def unqueue(self, question: Queued) -> None:
        if question.number is not None:
            self.unqueued.append(question.number)

    def write(self) -> None:
        """Write all that was noted.

        Raises:
            HistoryError: something cannot be written; it stays noted.
        """
        if self._history is None:
            return
        self._history.open_file()  # also if nothing is to be written yet: the user is warned early
        if self.chat is not None and not self._history.facts(self.chat):
            self.forget()
        if self.chat is None:
            if not (self._queue or any(not _is_empty(turn) for turn in self.turns)):
                self._parents.clear()
                return
            self.chat = self._history.create(**self.facts)
            self.changed.clear()
        self._write(self._history, self.chat)

    def _write(self, history: History, chat: int) -> None:
        for turn in list(self.turns):
            self._write_turn(history, chat, turn)
            self.turns.pop(turn, None)
        self._write_queue(history, chat)
        while self._withdrawn:
            history.withdraw(chat, self._withdrawn[0])
            del self._withdrawn[0]
        for parent in list(self._parents):
            self._write_shown(history, chat, parent)
            del self._parents[parent]
        for name in list(self.changed):
            history.set_fact(chat, name, self.facts[name])
            del self.changed[name]
        if not (self._tree.roots or self._queue) and not history.facts(chat):
            self.chat = None

    def forget(self) -> None:
        """Note that the chat is gone from the history: all of it that is left here is unsaved."""
        self.chat = None
        self._queue[:] = [Queued(one.text, one.attachments) for one in self._queue]
        self._withdrawn.clear()
        self.unqueued.clear()
        self.put_shown(None)
        for turn in self._tree:
            turn.number = None
            self.put(turn)
            if turn.children:
                self.put_shown(turn)

    def _write_turn(self, history: History, chat: int, turn: Turn) -> None:
        if turn.number is not None:
            about = {"lossy": turn.lossy, "writer": _writer(turn), "model": turn.model}
            if not history.update(turn.number, turn.text, turn.ending, **about):
                turn.number = None  # another window withdrew it, or wrote something else there
                self.is_outdated = True
        if turn.number is None and not self._add(history, chat, turn):
            self._add_lost(history, chat, turn)
        if turn.number is not None and turn.tokens and may_continue(turn):
            history.keep_tokens(turn.number, turn.tokens)

    def _add(self, history: History, chat: int, turn: Turn) -> bool:
        """Add a turn and those before it that are not saved; False if others are lost."""
        for above in path_to(turn):
            if above.number is not None or _is_empty(above):
                continue
            number = history.add(
                chat,
                above.role,
                above.text,
                above.ending,
                parent=(above.parent.number or 0) if above.parent else 0,
                attachments=above.attachments,
                lossy=above.lossy,
                writer=_writer(above),
                model=above.model,
            )
            if not number:
                return False
            above.number = number
            self._tree.sort_versions(above)
        return True

    def _add_lost(self, history: History, chat: int, turn: Turn) -> None:
        """Add a turn, and again what other windows withdrew before it."""
        saved = {message.number for message in history.messages(chat)}
        for above in path_to(turn):
            if above.number not in saved:
                above.number = None
                self.put(above)
        if not self._add(history, chat, turn):
            raise HistoryError("cannot save the chat", "other windows are changing it")

    def _write_queue(self, history: History, chat: int) -> None:
        for place, question in enumerate(self._queue):
            if question.number is None:
                number = history.enqueue(chat, question.text, question.attachments)
                self._queue[place] = Queued(question.text, question.attachments, number)
        while self.unqueued:
            history.unqueue(self.unqueued[0])
            del self.unqueued[0]

    def _write_shown(self, history: History, chat: int, parent: Turn | None) -> None:
        child = self._tree.shown_below(parent)
        above, below = (0 if turn is None else turn.number for turn in (parent, child))
        if above is not None and below is not None:
            history.show(chat, above, below)


def _writer(turn: Turn) -> str:
    return own_writer() if turn.is_growing else ""


def _is_empty(turn: Turn) -> bool:
    return turn.role == ASSISTANT and not (turn.text or turn.ending or turn.children)
