"""Files named with @: found while typing, counted before they are sent."""

from pathlib import Path

import pytest

from app.chat.attachments import file_names, named_files, with_files, without_files
from app.tui.prompt.completion import Completion
from app.tui.prompt.prompt_area import PromptArea
from tests.app.tui.conftest import Chatting
from tests.fixtures.scripted import ScriptedModel


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = tmp_path / "files"
    (files / "notes").mkdir(parents=True)
    (files / "notes" / "to do.txt").write_text("buy milk")
    (files / "north.txt").write_text("cold")
    (files / ".hidden").write_text("secret")
    monkeypatch.chdir(files)
    return files


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("before", "names"),
    [
        ("read @no", ["north.txt", "notes/"]),
        ("@notes/", ["notes/to do.txt"]),
        ('@"notes/to d', ["notes/to do.txt"]),
        ("@north.txt", []),
        ("@", ["north.txt", "notes/"]),
        ("@.h", [".hidden"]),
        ("me@no", []),
        ("@nowhere/x", []),
        ("@" + "x" * 5000 + "/", []),
        ("@\0/", []),
        ("@~nobody-of-this-name/", []),
    ],
)
def test_names_are_completed(before: str, names: list[str]) -> None:
    assert file_names(before) == names


@pytest.mark.usefixtures("folder")
def test_what_is_no_file_stays_text() -> None:
    text = f"@nowhere @{'x' * 5000} @\0 @notes me@north.txt"
    assert named_files(text) == []
    assert with_files(text) == text


@pytest.mark.usefixtures("folder")
async def test_a_file_is_picked_and_its_cost_told(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"])) as chat:
        area = chat.prompt
        area.focus()
        await chat.pilot.press(*"see ", "at", *"note")
        await chat.until(lambda: chat.screen.query_one(Completion).display)
        await chat.pilot.press("tab")
        await chat.until(lambda: area.text == "see @notes/")
        await chat.pilot.press("tab")
        await chat.until(lambda: area.text == 'see @"notes/to do.txt" ')
        tokens = len("to do.txt:\n```\nbuy milk\n```")
        await chat.until(lambda: f"{tokens} tokens" in str(area.border_subtitle))
        await chat.pilot.press("enter")
        await chat.until(lambda: len(chat.texts) == 2 and chat.view.pending is None)
        assert chat.texts[0][1].endswith("to do.txt:\n```\nbuy milk\n```")
        await chat.until(lambda: not area.border_subtitle)


async def test_a_file_that_is_no_text_is_told_before_it_is_sent(
    chatting: Chatting, folder: Path
) -> None:
    (folder / "picture.bin").write_bytes(b"\xff\xfe\x00")
    async with chatting(ScriptedModel(["a"])) as chat:
        area = chat.screen.query_one(PromptArea)
        area.text = "see @picture.bin"
        await chat.until(lambda: "cannot be added: it is not text" in str(area.border_subtitle))


async def test_a_name_that_is_no_file_and_a_file_that_cannot_fit_are_told(
    chatting: Chatting, folder: Path
) -> None:
    (folder / "long.txt").write_text("x" * 600)
    async with chatting(ScriptedModel(["a"], n_ctx=512)) as chat:
        chat.prompt.text = "see @none.txt and @someone"
        await chat.until(lambda: str(chat.prompt.border_subtitle) == "none.txt: file not found")
        chat.prompt.text = "see @long.txt"
        await chat.until(lambda: "more than the context of 512" in str(chat.prompt.border_subtitle))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "typed", ["plain", "see @north.txt", 'see @"notes/to do.txt" and @north.txt', "north.txt:\n```"]
)
def test_a_message_is_found_again_as_it_was_typed(typed: str) -> None:
    assert without_files(with_files(typed)) == typed


@pytest.mark.usefixtures("folder")
async def test_a_question_with_a_file_is_edited_as_it_was_typed(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"])) as chat:
        await chat.ask("see @north.txt")
        await chat.pilot.press("f9")
        await chat.until(lambda: chat.prompt.text == "see @north.txt")
