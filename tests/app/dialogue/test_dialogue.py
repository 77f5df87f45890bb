"""A chat with its tree, queue and settings, saved as it changes, and changes undone."""

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import ASSISTANT, USER, Change, Changes, OwnChanges, Turn
from app.history import History, HistoryError
from app.history.records import own_writer
from backends.base import UsageError

PASTE = Attachment(AttachmentKind.PASTE, "[pasted 6 lines]", "1\n2\n3\n4\n5\n6")
FILE = Attachment(AttachmentKind.FILE, "~/notes/a.md", "walrus")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.sqlite3"


@pytest.fixture
def dialogue(path: Path) -> Iterator[Dialogue]:
    with closing(History.open(path)) as history:
        yield Dialogue(history, "be brief", "demo")


@pytest.fixture
def other(path: Path, dialogue: Dialogue) -> Iterator[Dialogue]:
    """A second window on the same chat, which has a question and an answer."""
    exchange(dialogue)
    with closing(History.open(path)) as history:
        opened = Dialogue(history)
        assert dialogue.chat is not None
        opened.open(dialogue.chat)
        yield opened


def exchange(dialogue: Dialogue, question: str = "question", answer: str = "answer") -> list[Turn]:
    asked = dialogue.add(USER, question)
    return [asked, answered(dialogue, answer)]


def answered(dialogue: Dialogue, answer: str) -> Turn:
    turn = dialogue.add(ASSISTANT, "")
    turn.text, turn.ending = answer, "3 tokens"
    dialogue.save(turn)
    return turn


def texts(dialogue: Dialogue) -> list[str]:
    return [turn.text for turn in dialogue.turns]


def reopened(path: Path, dialogue: Dialogue) -> Dialogue:
    assert dialogue.chat is not None
    again = Dialogue(History.open(path))
    again.open(dialogue.chat)
    return again


def test_an_edited_question_stands_beside_the_first(dialogue: Dialogue, path: Path) -> None:
    question, _ = exchange(dialogue)
    exchange(dialogue, "more", "of it")
    edited = dialogue.add_version(question, "edited")
    assert (texts(dialogue), dialogue.title) == (["edited"], "edited")
    assert dialogue.versions(question) == [question, edited]
    assert texts(reopened(path, dialogue)) == ["edited"]
    dialogue.show(question)
    assert texts(dialogue) == ["question", "answer", "more", "of it"]
    assert texts(reopened(path, dialogue)) == texts(dialogue)
    assert reopened(path, dialogue).title == "question"


def test_a_chat_without_a_file() -> None:
    dialogue = Dialogue(None)
    exchange(dialogue)
    dialogue.enqueue("next")
    assert dialogue.refresh() is False
    assert dialogue.next_queued() is not None
    assert (dialogue.chat, dialogue.fault, dialogue.questions()) == (None, "", [])
    with pytest.raises(UsageError, match="nothing to export"):
        dialogue.export(Path("chat.md"))


def test_an_unanswered_question_comes_back_and_its_chat_goes(dialogue: Dialogue) -> None:
    assert dialogue.history is not None
    question = dialogue.add(USER, "question")
    dialogue.add(ASSISTANT, "")
    assert dialogue.chat is not None
    dialogue.withdraw(question)
    assert (texts(dialogue), dialogue.chat, dialogue.history.chats()) == ([], None, [])
    question, answer = exchange(dialogue)
    for turn in (question, answer):
        dialogue.withdraw(turn)
    assert texts(dialogue) == ["question", "answer"]


def test_an_answer_that_got_no_text_leaves_the_one_before(dialogue: Dialogue, path: Path) -> None:
    _, answer = exchange(dialogue)
    again = dialogue.add_version(answer, "")
    assert again.is_growing
    assert texts(reopened(path, dialogue)) == ["question", "answer"]
    dialogue.withdraw(again)
    assert dialogue.turns[-1] is answer


def test_what_the_model_reads(dialogue: Dialogue) -> None:
    question = dialogue.add(USER, "see [pasted 6 lines] and @~/notes/a.md", (PASTE, FILE))
    exchange(dialogue, "more")
    (message,) = dialogue.conversation(question).turns
    assert message.content == f"a.md:\n```\nwalrus\n```\n\nsee {PASTE.text} and @~/notes/a.md"
    assert [one.role for one in dialogue.conversation().turns] == [USER, USER, ASSISTANT]
    dialogue.drop_oldest(1)
    assert len(dialogue.conversation().turns) == 2
    dialogue.show(question)
    assert dialogue.dropped == 0


def test_attachments_stay_beside_the_message(dialogue: Dialogue, path: Path) -> None:
    dialogue.add(USER, "see [pasted 6 lines]", (PASTE, FILE))
    (turn,) = reopened(path, dialogue).turns
    assert (turn.text, turn.attachments) == ("see [pasted 6 lines]", (PASTE, FILE))
    assert dialogue.questions() == [f"see {PASTE.text}"]
    written = dialogue.export(path.with_name("chat.md")).read_text(encoding="utf-8")
    assert f"a.md:\n```\nwalrus\n```\n\nsee {PASTE.text}" in written


def test_the_queue_is_kept_until_its_questions_stand_elsewhere(
    dialogue: Dialogue, path: Path
) -> None:
    exchange(dialogue)
    for text in ("one", "two", "three"):
        dialogue.enqueue(text, (PASTE,))
    assert [(one.text, one.attachments) for one in reopened(path, dialogue).queue] == [
        ("one", (PASTE,)), ("two", (PASTE,)), ("three", (PASTE,)),
    ]  # fmt: skip
    question, last = dialogue.next_queued(), dialogue.take_back()
    assert question is not None
    assert last is not None
    assert (question.text, last.text) == ("one", "three")
    assert len(reopened(path, dialogue).queue) == 3
    dialogue.refresh()
    assert [one.text for one in reopened(path, dialogue).queue] == ["one", "two"]
    dialogue.add(USER, question.text, question.attachments)
    assert [one.text for one in reopened(path, dialogue).queue] == ["two"]
    assert [one.text for one in dialogue.queue] == ["two"]


def test_a_new_chat_starts_from_the_defaults(dialogue: Dialogue, path: Path) -> None:
    exchange(dialogue)
    dialogue.set_system("answer in rhyme")
    dialogue.set_own({"top_k": 3})
    dialogue.rename("a name")
    dialogue.set_model("other")
    again = reopened(path, dialogue)
    assert (again.system, again.own, again.title, again.model) == (
        "answer in rhyme", {"top_k": 3}, "a name", "other",
    )  # fmt: skip
    fresh = dialogue.fresh()
    assert (fresh.system, fresh.own, fresh.title, fresh.turns) == ("be brief", {}, "", [])
    dialogue.rename("")
    assert reopened(path, dialogue).title == dialogue.title == "question"


def test_what_another_window_asks_appears(dialogue: Dialogue, other: Dialogue) -> None:
    turns = list(dialogue.turns)
    exchange(other, "from the other", "window")
    other.rename("named there")
    other.enqueue("waits")
    assert dialogue.refresh()
    assert texts(dialogue) == ["question", "answer", "from the other", "window"]
    assert dialogue.turns[:2] == turns
    assert (dialogue.title, [one.text for one in dialogue.queue]) == ("named there", ["waits"])
    assert not dialogue.refresh()


def test_both_branches_stay_if_both_ask(dialogue: Dialogue, other: Dialogue, path: Path) -> None:
    exchange(dialogue, "here", "1")
    exchange(other, "there", "2")
    assert dialogue.refresh()
    assert other.refresh()
    assert texts(dialogue)[2:] == ["here", "1"]
    assert texts(other)[2:] == ["there", "2"]
    assert [turn.text for turn in dialogue.versions(dialogue.turns[2])] == ["here", "there"]
    assert reopened(path, dialogue).turns[2].text == "there"


def test_an_answer_is_interrupted_only_once_its_app_is_gone(
    dialogue: Dialogue, other: Dialogue, path: Path
) -> None:
    dialogue.add(USER, "more")
    growing = dialogue.add(ASSISTANT, "")
    assert other.refresh()
    assert texts(other)[-1] == "more"
    growing.text, growing.lossy = "begun", "lossy: typical"
    dialogue.save(growing)
    assert other.refresh()
    assert other.turns[-1].is_growing
    growing.text += ", and on"
    dialogue.save(growing)
    assert other.refresh()
    assert (texts(other)[-1], other.turns[-1].is_interrupted) == ("begun, and on", False)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE messages SET writer = '1 0.0' WHERE writer = ?", (own_writer(),))
        connection.commit()
    assert other.refresh()
    assert other.turns[-1].is_interrupted
    assert other.turns[-1].lossy == "lossy: typical"
    exported = other.export(path.with_name("chat.md")).read_text()
    assert exported.endswith("begun, and on\n\n*lossy: typical*\n")


@pytest.mark.slow
def test_a_locked_file_is_named_and_all_is_saved_later(
    dialogue: Dialogue, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange(dialogue)
    assert dialogue.history is not None
    dialogue.history._connection.execute("PRAGMA busy_timeout = 10")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        _, answer = exchange(dialogue, "while locked", "answered")
        dialogue.enqueue("waits")
        dialogue.set_system("changed")
        dialogue.add_version(answer, "another")
        dialogue.show(answer)
        assert dialogue.fault == "another program has locked the file"
        assert not dialogue.refresh()
        connection.rollback()
    dialogue.refresh()
    assert dialogue.fault == ""
    again = reopened(path, dialogue)
    assert texts(again) == ["question", "answer", "while locked", "answered"]
    assert [turn.text for turn in again.versions(again.turns[-1])] == ["answered", "another"]
    assert (again.system, [one.text for one in again.queue]) == ("changed", ["waits"])


def test_a_deleted_file_is_named(dialogue: Dialogue, path: Path) -> None:
    exchange(dialogue)
    path.rename(path.with_name("moved"))
    exchange(dialogue, "more", "of it")
    assert dialogue.fault == "the file was deleted"
    path.with_name("moved").rename(path)
    dialogue.refresh()
    assert texts(reopened(path, dialogue)) == ["question", "answer", "more", "of it"]


def test_all_that_was_said_is_saved_once_the_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    path = tmp_path / "data" / "chats.sqlite3"
    with closing(History(path, repairs=True)) as history:
        dialogue = Dialogue(history, "be brief", "demo")
        dialogue.refresh()
        assert (str(path.parent) in dialogue.fault, dialogue.is_behind) == (True, False)
        _, answer = exchange(dialogue)
        dialogue.add_version(answer, "another")
        dialogue.enqueue("waits")
        assert dialogue.fault
        with pytest.raises(HistoryError, match="not saved"):
            dialogue.export(tmp_path / "chat.md")
        path.parent.unlink()
        dialogue.refresh()
        assert (dialogue.fault, dialogue.is_behind) == ("", False)
        again = reopened(path, dialogue)
    assert texts(again) == ["question", "another"]
    assert [one.text for one in again.queue] == ["waits"]


class Light:
    """Something that is switched, and sometimes stuck."""

    def __init__(self) -> None:
        self.is_on = True
        self.is_stuck = False

    def switch(self, is_on: bool) -> None:
        if self.is_stuck:
            raise OSError("stuck")
        self.is_on = is_on

    @property
    def change(self) -> Change:
        return Change("switched", lambda: self.switch(False), lambda: self.switch(True))


async def at_the_second_try(light: Light, step: Callable[[], Awaitable[str]]) -> str:
    """What a step returns that failed at first."""
    light.is_stuck = True
    with pytest.raises(OSError, match="stuck"):
        await step()
    light.is_stuck = False
    return await step()


async def test_a_step_that_failed_can_be_tried_again() -> None:
    light, changes = Light(), Changes()
    changes.add(light.change)
    assert await at_the_second_try(light, changes.undo) == "switched"
    assert not light.is_on
    assert await at_the_second_try(light, changes.redo) == "switched"
    assert light.is_on


async def test_own_changes_are_undone_alone() -> None:
    before, here, changes = Light(), Light(), Changes()
    changes.add(before.change)
    own = OwnChanges(changes)
    assert await own.undo() == ""
    own.add(here.change)
    assert await at_the_second_try(here, own.undo) == "switched"
    assert await own.undo() == ""
    assert (before.is_on, here.is_on) == (True, False)
    assert await own.redo() == "switched"
    assert await own.redo() == ""
    assert here.is_on
