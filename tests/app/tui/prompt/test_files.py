"""Files named with @: found while typing, at every size of the screen."""

from pathlib import Path

import pytest

from app.chat.attachments import file_names
from app.tui.prompt.completion import Completion
from tests.fixtures.prompt_app import prompting


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = tmp_path / "files"
    (files / "notes").mkdir(parents=True)
    (files / "notes" / "to do.txt").write_text("buy milk")
    (files / "north.txt").write_text("cold")
    (files / ".hidden").write_text("secret")
    monkeypatch.chdir(files)
    return files


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


async def test_a_folder_and_then_its_file_are_picked() -> None:
    async with prompting() as prompt:
        await prompt.type("see @note")
        await prompt.press("tab")
        assert prompt.text == "see @notes/"
        await prompt.press("tab")
        assert prompt.text == 'see @"notes/to do.txt" '
        await prompt.press("enter")
        assert prompt.submitted == ['see @"notes/to do.txt"']


@pytest.mark.parametrize(
    ("size", "most"), [((80, 24), 6), ((40, 20), 6), ((40, 12), 3), ((10, 3), 0)]
)
async def test_suggestions_leave_room_for_the_prompt(size: tuple[int, int], most: int) -> None:
    async with prompting(size) as prompt:
        await prompt.type("/")
        assert prompt.app.query_one(Completion).size.height == most
        assert prompt.area.region.bottom <= size[1]
        assert prompt.area.region.height >= 1


async def test_no_suggestions_for_a_question_that_is_edited() -> None:
    async with prompting() as prompt:
        prompt.prompt.begin_edit("/he", (), 2)
        await prompt.press("l")
        assert not prompt.app.query_one(Completion).display


async def test_a_click_picks_a_suggestion() -> None:
    async with prompting() as prompt:
        await prompt.type("see @")
        await prompt.pilot.click(Completion, offset=(3, 0))
        await prompt.until(lambda: prompt.text == "see @north.txt ")
