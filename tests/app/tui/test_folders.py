"""Folders in the app: attached to a chat, named in a message, and read before Enter."""

from pathlib import Path

import pytest
from textual.widgets import Collapsible

from app.chat.attachments import AttachmentKind
from app.dialogue.tree import USER, Turn
from app.tui.prompt.area import PromptArea
from tests.app.tui.conftest import Chat
from tests.app.tui.test_reading_ahead import Told, told, type_in

__all__ = ["told"]


pytestmark = pytest.mark.usefixtures("notes")


def _names(turn: Turn) -> list[str]:
    return [one.name for one in turn.attachments]


def _questions(chat: Chat) -> list[Turn]:
    return [turn for turn in chat.view.dialogue.turns if turn.role == USER]


async def test_a_chats_folder_goes_with_its_questions_and_is_undone(
    told: Told, chat: Chat, notes: Path
) -> None:
    await chat.ready()
    await chat.say("/folder notes/")
    await chat.until(lambda: chat.screen.store.folder == "notes")
    # all of it is read before a word is typed
    await chat.until(lambda: "called Minka" in told.message)
    await type_in(chat, "Who is Rex?")
    await chat.until(lambda: told.message.endswith("Who is Rex?"))
    expected = told.message
    await chat.ask("Who is Rex?")
    assert told.asked[-1].conversation.turns[-1].content == expected
    assert told.asked[-1].documents is not None
    await chat.ask("And Minka?")
    (notes / "b.md").write_text("The cat is called Mimi.")
    await chat.ask("And now?")
    names = ["notes/a.md", "notes/b.md"]
    assert not chat.screen.query("QuestionView Collapsible")
    assert [_names(turn) for turn in _questions(chat)] == [names, [], ["notes/b.md"]]
    await chat.pilot.press("ctrl+z")
    await chat.until(lambda: chat.screen.store.folder == "")
    assert chat.view.dialogue.folder == ""
    await chat.pilot.press("ctrl+y")
    await chat.until(lambda: chat.view.dialogue.folder == str(notes))
    await chat.say("/folder off")
    await chat.until(lambda: chat.view.dialogue.folder == "")
    await chat.say("/folder nowhere")
    await chat.until(lambda: "no folder nowhere" in str(chat.prompt.border_title))


async def test_a_named_folder_is_shown_with_its_size_and_expected_as_it_is_sent(
    told: Told, chat: Chat, notes: Path
) -> None:
    for number in range(40):  # more than fits: passages of it are sent
        (notes / f"{number:02}.txt").write_text(f"Clause {number} is about the rent. " * 40)
    await chat.ready()
    await type_in(chat, "What does clause 17 in @notes/ say?")
    await chat.until(lambda: "notes/ · 42 files" in str(chat.prompt.border_title))
    await chat.until(lambda: "17.txt" in told.message)
    expected = told.message
    await chat.ask("What does clause 17 in @notes/ say?")
    assert told.asked[-1].conversation.turns[-1].content == expected
    (question,) = _questions(chat)
    assert {one.kind for one in question.attachments} == {AttachmentKind.PASSAGE}
    assert question.attachments[0].name.startswith("[1] notes/")
    await chat.pilot.press("f9")
    await chat.until(lambda: chat.view.store.edited is question)
    await chat.pilot.press("end", *"2", "enter")
    await chat.until(lambda: len(chat.view.dialogue.versions(question)) == 2)
    await chat.idle()
    edited = chat.view.dialogue.versions(question)[1]
    assert edited.attachments[0].name.startswith("[1] notes/")
    assert isinstance(chat.prompt, PromptArea)


async def test_with_tools_what_is_expected_is_what_is_asked(told: Told, chat: Chat) -> None:
    await chat.ready()
    await chat.say("/tools files")
    await type_in(chat, "Who is Rex?")
    await chat.until(lambda: told.expected is not None and told.message == "Who is Rex?")
    expected = told.expected
    assert expected is not None
    await chat.ask("Who is Rex?")
    asked = told.asked[-1]
    assert asked.tools
    assert expected.leads_to(asked.conversation, asked.tools)
    assert not expected.leads_to(asked.conversation)


async def test_many_files_of_a_folder_stand_folded(chat: Chat, notes: Path) -> None:
    for number in range(6):
        (notes / f"{number}.md").write_text(f"The bird is called {number}.")
    await chat.ready()
    await chat.ask("Who is in @notes/?")
    assert len(_names(_questions(chat)[0])) == 8
    (folded,) = chat.screen.query("QuestionView Collapsible").results(Collapsible)
    assert (folded.title, folded.collapsed) == ("8 files", True)


async def test_a_folder_is_completed_and_run_as_it_stands(chat: Chat, notes: Path) -> None:
    (notes / "inner").mkdir()
    chat.prompt.focus()
    await chat.pilot.press(*"/folder no", "tab")
    await chat.until(lambda: chat.prompt.text == "/folder notes/")
    await chat.pilot.press("enter")
    await chat.until(lambda: chat.view.dialogue.folder == str(notes))
