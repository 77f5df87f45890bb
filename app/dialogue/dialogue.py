"""A chat: its tree of messages, its settings and its queue, each saved as it changes."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from app.chat.attachments import Attachment, AttachmentKind, Attachments, in_full, with_pastes
from app.chat.conversation import Conversation
from app.dialogue.saver import Saver
from app.dialogue.tree import ASSISTANT, TOOL, USER, Tree, Turn, called, merge, path_to
from app.history import History, HistoryError
from app.history.export import write_export
from app.history.records import Queued, title_of
from app.settings.answering import restored, stored
from app.settings.catalogue import Value
from app.tools.toolbox import before_calls
from backends.base import UsageError
from backends.chat.message import Message, ToolCall


class Dialogue:
    """One chat. A failed save does not stop it: what could not be saved is saved later.

    own: settings of this chat alone. folder: what its questions are answered with, absolute; empty
    for none. default_system: of new chats. queue: questions that wait, and
    name, which the user gave it: read only. fault: why the last save failed, empty if it succeeded.
    dropped: how many of the first turns no longer fit the model's context.
    """

    def __init__(self, history: History | None, default_system: str = "", model: str = "") -> None:
        self.history = history
        self.system = self.default_system = default_system
        self.model = model
        self.own: dict[str, Value] = {}
        self.folder = ""
        self.queue: list[Queued] = []
        self.fault = ""
        self.dropped = 0
        self.name = ""
        self._tree = Tree()
        self._growing: set[Turn] = set()
        """Answers that this window writes."""
        self._sending: Queued | None = None
        """The question taken from the queue last, until it stands in the tree."""
        self._saver = Saver(history, self._tree, self.queue)
        self._saver.put_fact("model", model)
        self._saver.put_fact("system", default_system)

    @property
    def chat(self) -> int | None:
        """The chat's number in the history, None while it is not saved."""
        return self._saver.chat

    @property
    def is_behind(self) -> bool:
        """Whether something of it is not saved."""
        return self._saver.is_behind

    @property
    def turns(self) -> list[Turn]:
        """The path shown, first question first; read only."""
        return self._tree.path

    def is_same_chat(self, other: "Dialogue") -> bool:
        """Whether both are the same chat, which may have been opened twice."""
        return self is other or (self.chat is not None and self.chat == other.chat)

    @property
    def title(self) -> str:
        """The name that the user gave the chat, else its first question; empty if new."""
        first = self._tree.root
        asked = first or (self.queue[0] if self.queue else None)
        is_answer = first is not None and first.role != USER
        return self.name or (title_of(asked.text) if asked and not is_answer else "")

    # Turns

    def versions(self, turn: Turn) -> list[Turn]:
        """The turn and its other versions, oldest first; read only."""
        return self._tree.versions(turn)

    @property
    def all_turns(self) -> list[Turn]:
        """The turns of all versions."""
        return list(self._tree)

    def add(self, role: str, text: str, attachments: Attachments = ()) -> Turn:
        parent = self.turns[-1] if self.turns else None
        if role == USER:
            self._leave_queue()
        return self._added(Turn(role, text, attachments=attachments, parent=parent))

    def add_version(self, turn: Turn, text: str, attachments: Attachments = ()) -> Turn:
        self.dropped = 0
        parent = turn.parent
        while parent is not None and parent not in self._tree:  # another window withdrew it
            parent = parent.parent
        return self._added(Turn(turn.role, text, attachments=attachments, parent=parent))

    def _added(self, turn: Turn) -> Turn:
        self._put_shown(self._tree.add(turn))
        self.save(turn)
        return turn

    def show(self, turn: Turn) -> None:
        """Show a version with what leads to it and what was last shown below it, and save that.

        A turn that was withdrawn is not shown.
        """
        if turn in self._tree:
            self.dropped = 0
            self._put_shown(self._tree.show(turn))
            self._write()

    def save(self, turn: Turn, *, is_broken_off: bool = False) -> None:
        """Save a turn; an answer grows until it is saved with an ending, or is broken off."""
        is_unfinished = turn.role == ASSISTANT and not turn.ending
        turn.is_growing = is_unfinished and not is_broken_off
        if turn.is_growing:
            self._growing.add(turn)
        else:
            self._growing.discard(turn)
        self._saver.put(turn)
        self._write()

    def withdraw(self, turn: Turn) -> None:
        """Remove a question without an answer, or an answer without text; any other stays.

        The newest other version is then shown. A chat without questions goes.
        """
        if _is_answered(turn) or turn not in self._tree:
            return
        self.dropped = 0
        self._growing.difference_update((turn, *turn.children))
        self._tree.remove(turn)
        self._saver.withdraw(turn)
        self._saver.put_shown(turn.parent)
        self._write()

    def _put_shown(self, turns: list[Turn]) -> None:
        for turn in turns:
            self._saver.put_shown(turn.parent)

    # Calls of tools

    def add_calls(self, answer: Turn, calls: Sequence[ToolCall]) -> None:
        """Add the calls that an answer ends with, in order, none of which has a result yet."""
        parent = answer
        for call in calls:
            named = (Attachment(AttachmentKind.CALL, call.name, call.arguments),)
            parent = self._added(Turn(TOOL, "", attachments=named, parent=parent))

    @property
    def open_calls(self) -> list[Turn]:
        """The calls of the last answer shown that have no result."""
        last = takewhile(lambda turn: turn.role == TOOL, reversed(self.turns))
        return [turn for turn in reversed([*last]) if not turn.text]

    def close_call(self, call: Turn, result: str, ending: str = "") -> None:
        """Save the result of a call. ending: how it ended, if not by itself."""
        call.text, call.ending = result, ending
        self.save(call)

    def rounds(self) -> int:
        """How many answers there are since the last question."""
        since = takewhile(lambda turn: turn.role != USER, reversed(self.turns))
        return sum(turn.role == ASSISTANT for turn in since)

    # The queue

    def enqueue(self, text: str, attachments: Attachments = ()) -> None:
        self.queue.append(Queued(text, attachments))
        self._write()

    def take_back(self) -> Queued | None:
        """Remove and return the last question; it stays saved until the next save or refresh."""
        question = self.queue.pop() if self.queue else None
        if question is not None:
            self._saver.unqueue(question)
        return question

    def next_queued(self) -> Queued | None:
        """Remove and return the first question; it stays saved until it is added as a turn."""
        self._leave_queue()
        self._sending = self.queue.pop(0) if self.queue else None
        return self._sending

    def _leave_queue(self) -> None:
        if self._sending is not None:
            self._saver.unqueue(self._sending)
        self._sending = None

    # The chat

    def rename(self, title: str) -> None:
        """Give the chat a name; with an empty one its first question names it."""
        self.name = title
        self._save_fact("title", title)

    def set_system(self, text: str) -> None:
        self.system = text
        self._save_fact("system", text)

    def set_own(self, own: Mapping[str, Value]) -> None:
        self.own = dict(own)
        self._save_fact("settings", stored(self.own))

    def set_folder(self, folder: str) -> None:
        self.folder = folder
        self._save_fact("folder", folder)

    def set_model(self, name: str) -> None:
        if name != self.model:
            self.model = name
            self._save_fact("model", name)

    def _save_fact(self, name: str, value: str) -> None:
        self._saver.put_fact(name, value)
        self._write()

    def fresh(self) -> "Dialogue":
        return Dialogue(self.history, self.default_system, self.model)

    # The history

    def open(self, chat: int) -> None:
        """Load a saved chat in place of this one, which must be new.

        Raises:
            HistoryError: it cannot be read.
        """
        if self.history is None:
            raise HistoryError(f"cannot open chat {chat}", "chats are not saved")
        self.history.chat(chat)
        self.history.has_changed()
        self._saver.chat = chat
        self._take_over(self.history)

    def refresh(self) -> bool:
        """Take over what other windows wrote to this chat; returns whether anything changed.

        What could not be saved before is saved now, if possible.
        """
        history, saver = self.history, self._saver
        if history is None:
            return False
        if saver.is_behind or self.fault:
            self._write()
        try:
            grows = any(turn.is_growing and turn not in self._growing for turn in self.turns)
            is_due = history.has_changed() or grows or saver.is_outdated
            return saver.chat is not None and is_due and self._take_over(history)
        except HistoryError as error:
            self.fault = error.why or error.what
            return False

    def reread(self) -> None:
        """Take over what this window did to the chat elsewhere, as in the list of chats.

        Raises:
            HistoryError: the chat is gone, or cannot be read.
        """
        if self.history is not None and self.chat is not None:
            self.history.chat(self.chat)
            self._take_over(self.history)

    def _take_over(self, history: History) -> bool:
        saver = self._saver
        assert saver.chat is not None
        saver.is_outdated = False
        messages, first = history.messages(saver.chat), history.first_shown(saver.chat)
        again = merge(
            self._tree, messages, first, lambda turn: turn in self._growing or turn in saver.turns
        )
        for turn in again or ():
            saver.put(turn)
        facts = history.facts(saver.chat)
        if not facts:
            saver.forget()
            return again is not None
        is_changed = self._take_over_facts(facts)
        is_changed = self._take_over_queue(history.queue(saver.chat)) or is_changed
        return again is not None or is_changed

    def _take_over_facts(self, saved: Mapping[str, str]) -> bool:
        saver = self._saver
        fresh = {name: value for name, value in saved.items() if name not in saver.changed}
        before = dict(saver.facts)
        saver.facts.update(fresh)
        if saver.facts == before:
            return False
        self.name, self.model = saver.facts["title"], saver.facts["model"]
        self.system, self.own = saver.facts["system"], restored(saver.facts["settings"])
        self.folder = saver.facts["folder"]
        return True

    def _take_over_queue(self, saved: Sequence[Queued]) -> bool:
        sending = self._sending.number if self._sending is not None else None
        before = list(self.queue)
        gone = {sending, *self._saver.unqueued}
        still = [one for one in saved if one.number not in gone]
        self.queue[:] = [*still, *(question for question in before if question.number is None)]
        return self.queue != before

    def _write(self) -> None:
        try:
            self._saver.write()
            self.fault = ""
        except HistoryError as error:
            self.fault = error.why or error.what

    def export(self, path: Path) -> Path:
        """Write the path shown to a new file; returns its absolute path.

        Raises:
            UsageError: there is nothing to export, or the file exists or has an unknown suffix.
            HistoryError: it cannot be written, or the chat is not saved.
        """
        self._write()
        if self.fault:
            raise HistoryError("the chat is not saved", self.fault)
        if self.history is None or self.chat is None:
            raise UsageError("there is nothing to export yet")
        if path.exists():
            what = "is a folder" if path.is_dir() else "already exists"
            raise UsageError(f"{path} {what}", "", "Choose another name.")
        return write_export(self.history, self.chat, path)

    def questions(self) -> list[str]:
        """Recent questions of all chats as they were typed, pastes unfolded, oldest first."""
        try:
            saved = self.history.questions() if self.history is not None else []
        except HistoryError as error:
            self.fault = error.why or error.what
            return []
        return [with_pastes(text, pastes) for text, pastes in saved]

    # The prompt

    def conversation(self, end: Turn | None = None) -> Conversation:
        """The prompt for an answer: what leads to a turn, the turn, and no dropped turns.

        end: None for the last turn shown.
        """
        path = self.turns if end is None else path_to(end)
        kept = path[min(self.dropped, len(path) - 1) :] if path else []
        return Conversation(self.system, _messages(kept))

    def leading_to(self, turn: Turn) -> Conversation:
        """The beginning of the prompt for another version of a turn."""
        return Conversation(self.system, _messages(path_to(turn)[:-1]))

    def tokens(self, answer: Turn) -> tuple[int, ...]:
        """Tokens of an answer that is continued, as far as they are known."""
        if answer.tokens or answer.number is None or self.history is None:
            return answer.tokens
        try:
            return self.history.tokens(answer.number)
        except HistoryError:  # its text is continued
            return ()

    def drop_oldest(self, messages: int) -> None:
        """Leave the oldest messages of the last conversation out of all later ones.

        Later prompts then begin with the same turns, so the prompt cache stays valid.
        """
        while messages > 0 and self.dropped < len(self.turns):
            messages -= bool(self.turns[self.dropped].text)
            self.dropped += 1


def _messages(turns: Sequence[Turn]) -> list[Message]:
    """What the model reads; an answer's calls are those that have results."""
    messages: list[Message] = []
    calls: list[ToolCall] = []
    for place, turn in reversed([*enumerate(turns)]):
        if turn.role == TOOL:
            if turn.text:
                name, arguments = called(turn)
                calls.insert(0, ToolCall(f"call{place:05}", name, arguments))
                messages.append(Message(TOOL, turn.text, answers=calls[0].id))
        elif turn.text:
            said = before_calls(turn.text) if calls else in_full(turn.text, turn.attachments)
            messages.append(Message(turn.role, said, tuple(calls)))
            calls.clear()
    return messages[::-1]


def _is_answered(turn: Turn) -> bool:
    if turn.role == ASSISTANT:
        return bool(turn.text or turn.children)
    return any(child.text or child.children for child in turn.children)
