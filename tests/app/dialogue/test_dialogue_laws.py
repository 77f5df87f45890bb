"""Random work in two windows on one file: nothing said is lost, and what is shown is saved."""

import re
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import ASSISTANT, USER, Change, Changes, Turn
from app.history import History

_STEPS = 40
_TEXT = re.compile(r"text \d+")


@dataclass(slots=True)
class Window:
    """A window with its own connection."""

    dialogue: Dialogue
    changes: Changes = field(default_factory=Changes)


class Office:
    """Two windows that work on one file, and all that was ever said in them."""

    def __init__(self, path: Path, random: Random) -> None:
        self._path, self._random = path, random
        self._open = ExitStack()
        self.windows = [self._window(), self._window()]
        self.said: set[str] = set()
        self._count = 0

    def close(self) -> None:
        self._open.close()

    def _window(self) -> Window:
        history = self._open.enter_context(closing(History.open(self._path)))
        return Window(Dialogue(history, "defaults", "demo"))

    def text(self) -> str:
        self._count += 1
        return f"text {self._count}"

    def attachments(self) -> tuple[Attachment, ...]:
        if self._random.random() < 0.7:
            return ()
        text = self.text()
        self.said.add(text)
        return (Attachment(AttachmentKind.PASTE, "[pasted 9 lines]", text),)

    def step(self) -> None:
        window = self._random.choice(self.windows)
        actions = [
            self.ask, self.ask, self.answer, self.answer, self.grow, self.edit, self.edit,
            self.show, self.show, self.withdraw, self.enqueue, self.send_next, self.take_back,
            self.rename, self.undo, self.refresh, self.refresh, self.reopen, self.other_chat,
        ]  # fmt: skip
        self._random.choice(actions)(window)
        assert not window.dialogue.fault
        check_path(window.dialogue)

    def ask(self, window: Window) -> None:
        text, attachments = self.text(), self.attachments()
        self.said.add(text)
        window.dialogue.add(USER, text, attachments)

    def answer(self, window: Window) -> None:
        dialogue = window.dialogue
        if dialogue.turns and dialogue.turns[-1].role == USER:
            turn = dialogue.add(ASSISTANT, "")
            if self._random.random() < 0.8:
                self._grow(dialogue, turn)

    def grow(self, window: Window) -> None:
        if window.dialogue.turns and window.dialogue.turns[-1].role == ASSISTANT:
            self._grow(window.dialogue, window.dialogue.turns[-1])

    def _grow(self, dialogue: Dialogue, turn: Turn) -> None:
        text = self.text()
        turn.text += f"<{text}>"
        turn.ending = self._random.choice(("", "3 tokens"))
        self.said.add(text)
        dialogue.save(turn)

    def edit(self, window: Window) -> None:
        if not window.dialogue.turns:
            return
        turn = self._random.choice(window.dialogue.turns)
        text = self.text()
        self.said.add(text)
        window.dialogue.add_version(turn, text, self.attachments())
        dialogue = window.dialogue
        window.changes.add(Change("edited", lambda: dialogue.show(turn), lambda: None))

    def show(self, window: Window) -> None:
        if window.dialogue.turns:
            turn = self._random.choice(window.dialogue.turns)
            window.dialogue.show(self._random.choice(window.dialogue.versions(turn)))

    def withdraw(self, window: Window) -> None:
        if window.dialogue.turns and not window.dialogue.turns[-1].text.startswith("<"):
            turn = window.dialogue.turns[-1]
            window.dialogue.withdraw(turn)
            if turn not in all_turns(window.dialogue):
                self.said -= {turn.text, *(one.text for one in turn.attachments)}

    def enqueue(self, window: Window) -> None:
        text, attachments = self.text(), self.attachments()
        self.said.add(text)
        window.dialogue.enqueue(text, attachments)

    def send_next(self, window: Window) -> None:
        question = window.dialogue.next_queued()
        if question is not None:
            if self._random.random() < 0.3:
                window.dialogue.refresh()
            self.check_file()
            window.dialogue.add(USER, question.text, question.attachments)

    def take_back(self, window: Window) -> None:
        question = window.dialogue.take_back()
        if question is not None:
            self.check_file()
            self.said -= {question.text, *(one.text for one in question.attachments)}

    def rename(self, window: Window) -> None:
        dialogue, title = window.dialogue, self._random.choice(("", "a name"))
        dialogue.rename(title)

    def undo(self, window: Window) -> None:
        undone = window.changes.undo()
        with pytest.raises(StopIteration):
            undone.send(None)

    def refresh(self, window: Window) -> None:
        window.dialogue.refresh()

    def reopen(self, window: Window) -> None:
        """As after a kill: what is not in the file is gone."""
        fresh = self._window()
        chat, history = window.dialogue.chat, window.dialogue.history
        if chat is not None and history is not None and history.facts(chat):
            fresh.dialogue.open(chat)
        self.windows[self.windows.index(window)] = fresh

    def other_chat(self, window: Window) -> None:
        """Opens the chat of the other window, or begins a new one."""
        dialogue = window.dialogue.fresh()
        chat = self._random.choice(self.windows).dialogue.chat
        if chat is not None and self._random.random() < 0.9:
            assert dialogue.history is not None
            if dialogue.history.facts(chat):
                dialogue.open(chat)
        window.dialogue, window.changes = dialogue, Changes()

    def check_file(self) -> None:
        lost = self.said - texts_in(self._path)
        assert not lost, lost


def texts_in(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            text
            for sql in (
                "SELECT text FROM messages", "SELECT text FROM attachments",
                "SELECT text FROM queue", "SELECT attachments FROM queue",
            )
            for (column,) in connection.execute(sql)
            for text in _TEXT.findall(column)
        }  # fmt: skip


def all_turns(dialogue: Dialogue) -> list[Turn]:
    return list(dialogue._tree)


def check_path(dialogue: Dialogue) -> None:
    turns = all_turns(dialogue)
    parent = None
    for turn in dialogue.turns:
        assert turn.parent is parent
        assert turn in dialogue.versions(turn)
        parent = turn
    assert parent is None or not parent.children
    numbers = [turn.number for turn in turns if turn.number is not None]
    assert len(set(numbers)) == len(numbers)
    for turn in turns:
        saved = [child.number for child in turn.children if child.number is not None]
        assert saved == sorted(saved)
        assert turn.shown in turn.children or (turn.shown is None and not turn.children)


def picture(turn: Turn, *, shows: bool) -> object:
    """A turn and all below it that is saved."""
    shown = turn.shown.number if turn.shown is not None and shows else None
    children = [picture(child, shows=shows) for child in turn.children if child.number]
    facts = turn.role, turn.text, turn.ending, turn.attachments, turn.number
    return (*facts, shown, children)


def pictures(dialogue: Dialogue, *, shows: bool) -> list[object]:
    return [picture(root, shows=shows) for root in dialogue._tree.roots if root.number]


def check_same(path: Path, dialogue: Dialogue, *, shows: bool) -> None:
    """What the window holds is what another one opens."""
    if dialogue.chat is None:
        assert not any(turn.number for turn in all_turns(dialogue))
        return
    with closing(History.open(path)) as history:
        again = Dialogue(history)
        again.open(dialogue.chat)
        assert pictures(again, shows=shows) == pictures(dialogue, shows=shows)
        assert (again.system, again.model) == (dialogue.system, dialogue.model)
        assert [one.text for one in again.queue] == [one.text for one in dialogue.queue]
        if shows:
            kept = [turn.number for turn in dialogue.turns if turn.number]
            assert [turn.number for turn in again.turns][: len(kept)] == kept
            assert again.title == dialogue.title


def stop(dialogue: Dialogue) -> None:
    for turn in list(dialogue._growing):
        turn.ending = "stopped"
        dialogue.save(turn)


def work(path: Path, seed: int) -> None:
    office = Office(path, Random(seed))
    try:
        for _ in range(_STEPS):
            office.step()
        office.check_file()
        for window in office.windows:
            stop(window.dialogue)
        for window in office.windows * 2:
            window.dialogue.refresh()
        office.check_file()
        for window in office.windows:
            check_same(path, window.dialogue, shows=False)
    finally:
        office.close()


def work_through(folder: Path, seeds: range) -> None:
    for seed in seeds:
        path = folder / f"{seed}.sqlite3"
        work(path, seed)
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_two_windows_lose_nothing(tmp_path: Path, part: int) -> None:
    work_through(tmp_path, range(part * 25, part * 25 + 25))


@pytest.mark.nightly
def test_two_windows_lose_nothing_in_thousands_of_sequences(tmp_path: Path) -> None:
    work_through(tmp_path, range(1000, 4000))


def alone(path: Path, seed: int) -> None:
    """One window: what it shows is what is opened again, versions shown included."""
    office = Office(path, Random(seed))
    try:
        office.windows[1:] = []
        for _ in range(_STEPS):
            office.step()
        (window,) = office.windows
        window.dialogue.refresh()
        check_same(path, window.dialogue, shows=True)
    finally:
        office.close()


@pytest.mark.slow
def test_what_one_window_shows_is_opened_again(tmp_path: Path) -> None:
    for seed in range(100):
        alone(tmp_path / f"{seed}.sqlite3", seed)


def test_a_withdrawal_that_cuts_what_follows_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = "DELETE FROM messages WHERE number >= ?1 AND chat = ?2"
    monkeypatch.setattr("app.history.store._WITHDRAW", cut)
    with pytest.raises(AssertionError):
        work_through(tmp_path, range(100))


@pytest.mark.slow
def test_a_save_that_replaces_the_text_of_another_window_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = (
        "UPDATE messages SET text = ?1, ending = ?2, lossy = ?3, writer = ?4 WHERE number = ?5"
    )
    monkeypatch.setattr("app.history.store._UPDATE", replace)
    with pytest.raises(AssertionError):
        work_through(tmp_path, range(300))
