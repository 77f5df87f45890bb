"""Files named with @: found while typing, at every size of the screen."""

import os
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.named_files import file_names, read_files
from app.documents import document
from app.documents.document import MOST_BYTES
from app.tui.prompt import folding
from app.tui.prompt.completion import Completion
from app.tui.prompt.folding import PromptText
from tests.fixtures.prompt_app import Prompting, prompting


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


@pytest.mark.slow
async def test_a_folder_and_then_its_file_are_picked(prompt: Prompting) -> None:
    await prompt.type("see @note")
    await prompt.press("tab")
    assert prompt.text == "see @notes/"
    await prompt.press("tab")
    assert prompt.text == 'see @"notes/to do.txt" '
    await prompt.press("enter")
    assert prompt.submitted == ['see @"notes/to do.txt"']


@pytest.mark.parametrize("named", ["@notes", "@notes/", "@north.txt"])
async def test_enter_sends_a_message_that_names_what_there_is(
    prompt: Prompting, folder: Path, named: str
) -> None:
    for name in ("north.txt.bak", "notes 2.txt"):
        (folder / name).touch()
    await prompt.type(f"see {named}")
    await prompt.until(lambda: "Enter send" in prompt.shown)
    await prompt.press("enter")
    assert prompt.submitted == [f"see {named}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "most"), [((80, 24), 6), ((40, 20), 6), ((40, 12), 3), ((10, 3), 0)]
)
async def test_suggestions_leave_room_for_the_prompt(size: tuple[int, int], most: int) -> None:
    async with prompting(size) as prompt:
        await prompt.type("/")
        assert prompt.app.query_one(Completion).size.height == most
        assert prompt.area.region.bottom <= size[1]
        assert prompt.area.region.height >= 1


async def test_no_suggestions_for_a_question_that_is_edited(prompt: Prompting) -> None:
    prompt.area.begin_edit(PromptText("/he"), 2)
    await prompt.press("l")
    assert not prompt.app.query_one(Completion).display


async def test_a_click_picks_a_suggestion(prompt: Prompting) -> None:
    await prompt.type("see @")
    await prompt.pilot.click(Completion, offset=(3, 0))
    await prompt.until(lambda: prompt.text == "see @north.txt ")


@pytest.fixture
def odd(folder: Path) -> Path:
    """A folder of things that cannot be added."""
    (folder / "big.txt").touch()
    os.truncate(folder / "big.txt", MOST_BYTES + 1)
    (folder / "scan.bin").write_bytes(b"\xff\0")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "dangling.txt").symlink_to("gone")
    os.mkfifo(folder / "pipe")
    return folder


OTHER_PROGRAMS = Path(__file__).parents[3] / "fixtures" / "other_programs"


async def test_typing_and_enter_do_not_wait_for_a_file_that_hangs_its_reader(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.pdf").write_bytes((OTHER_PROGRAMS / "frogs.pdf").read_bytes())
    asked, answered = Event(), Event()
    ask = document._CHILD.ask

    def waiting(*arguments: Any) -> dict[str, Any]:
        asked.set()
        assert answered.wait(60)
        return ask(*arguments)

    monkeypatch.setattr(document._CHILD, "ask", waiting)
    monkeypatch.setattr(folding, "_READ_SECONDS", 0.01)
    async with prompting((90, 24)) as prompt:
        prompt.area.write("@a.pdf")
        await prompt.until(lambda: prompt.title == "reading a file")
        assert asked.is_set()
        assert not prompt.app.followed
        await prompt.press("space", "o", "k", "enter")
        assert prompt.text == "@a.pdf ok"
        assert prompt.title.startswith("✕ a file is still being read · Enter again sends")
        answered.set()
        await prompt.type("!")
        await prompt.until(lambda: prompt.title.startswith("a.pdf · "))
        await prompt.until(lambda: bool(prompt.app.followed))
        (file,) = prompt.app.followed[-1].attachments
        assert file.text.startswith("Frogs")


async def test_a_click_on_the_frame_shows_what_is_attached(folder: Path) -> None:
    (folder / "a.pdf").write_bytes((OTHER_PROGRAMS / "frogs.pdf").read_bytes())
    async with prompting((90, 30)) as prompt:
        prompt.area.write("@north.txt @a.pdf")
        await prompt.until(lambda: prompt.title.startswith("2 attachments"))
        for is_shown in (True, False, True):
            await prompt.pilot.click(prompt.area, offset=(5, 0))
            await prompt.until(lambda shown=is_shown: ("A newt needs" in prompt.shown) is shown)
        assert "▾ north.txt" in prompt.shown
        assert "── page 2 ──" in prompt.shown
        prompt.area.write("@a.pdf")
        await prompt.until(lambda: "A newt needs" not in prompt.shown)


DROPPED = [
    ("{}/north.txt", "@{}/north.txt "),
    ("'{}/notes/to do.txt'", '@"{}/notes/to do.txt" '),
    ("{}/notes/to\\ do.txt\n", '@"{}/notes/to do.txt" '),
    ("{}/notes/to do.txt", '@"{}/notes/to do.txt" '),
    ("file://{}/%E6%97%A5%E6%9C%AC%20%D0%BF.txt\n", '@"{}/日本 п.txt" '),
    ("{}/ภาษาไทย.md {}/north.txt", "@{}/ภาษาไทย.md @{}/north.txt "),
    ("{}/gone.txt", ""),
    ("{}/north.txt and more", ""),
    ("north.txt", ""),
    ("it's", ""),
]


@pytest.mark.skipif(os.name == "nt", reason="paths of POSIX")
@pytest.mark.parametrize(("pasted", "names"), DROPPED)
async def test_dropped_paths_become_names(
    folder: Path, prompt: Prompting, pasted: str, names: str
) -> None:
    for name in ("日本 п.txt", "ภาษาไทย.md"):
        (folder / name).write_text("text")
    pasted, names = (text.replace("{}", str(folder)) for text in (pasted, names))
    await prompt.type("see ")
    await prompt.paste(pasted)
    assert prompt.text == f"see {names or pasted}"
    if names:
        assert read_files(prompt.text)[1] == []
        prompt.area.write("@")
        await prompt.paste(pasted)
        assert prompt.text == names
        prompt.area.write("!cat ")
        await prompt.paste(pasted)
        assert prompt.text == f"!cat {pasted}"


ODD = "@no.txt @pipe @zero @dangling.txt @big.txt @scan.bin @anna @north.txt, done"
WHY = [
    "no file no.txt",
    "pipe is a pipe",
    "zero is a device",
    "no file dangling.txt",
    "big.txt is larger than 50 MB",
    "scan.bin is not text",
]


@pytest.mark.skipif(os.name == "nt", reason="files of POSIX")
@pytest.mark.usefixtures("odd")
async def test_all_that_cannot_be_added_is_told_at_once_and_then_sent() -> None:
    read, faults = read_files(ODD)
    assert faults == WHY
    assert [(one.name, one.text) for one in read] == [("north.txt", "cold")]
    async with prompting((250, 24)) as prompt:
        prompt.area.write(ODD)
        await prompt.until(lambda: prompt.title == "✕ " + " · ".join(WHY))
        await prompt.press("enter")
        told = "Enter again sends your text without the files"
        assert prompt.title == "✕ " + " · ".join([*WHY, told])
        assert prompt.submitted == []
        await prompt.press("enter")
        assert prompt.submitted == [ODD]


@pytest.mark.skipif(os.name == "nt", reason="files of POSIX")
@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("@big.txt", "✕ big.txt is larger than 50 MB"),
        ("@scan.bin ?", "✕ scan.bin is not text"),
        ("@pipe @zero ?", "✕ pipe is a pipe · zero is a device"),
    ],
)
async def test_what_is_wrong_with_files_fits_a_narrow_screen(text: str, fault: str) -> None:
    async with prompting((40, 20)) as prompt:
        prompt.area.write(text)
        await prompt.press("enter")
        shown = " ".join(line.strip() for line in await prompt.lines())
        files = "files" if " · " in fault else "file"
        assert f"{fault} · Enter again sends your text without the {files}" in shown
        assert prompt.title == ""


@pytest.mark.parametrize("text", ["thanks @anna", "@ home", "so @... it", "me@nosuch.org"])
async def test_what_is_no_file_is_sent_at_once(prompt: Prompting, text: str) -> None:
    prompt.area.write(text)
    await prompt.press("enter")
    assert prompt.submitted == [text]


@pytest.mark.slow
async def test_a_name_is_not_doubted_while_it_is_typed(prompt: Prompting) -> None:
    await prompt.type("see @nort.tx")
    await prompt.pilot.pause(0.3)
    assert prompt.title == ""
    await prompt.type(" ")
    await prompt.until(lambda: prompt.title == "✕ no file nort.tx")


async def test_an_attached_file_that_is_gone_is_still_sent(prompt: Prompting) -> None:
    gone = Attachment(AttachmentKind.FILE, "Makefile", "all:")
    prompt.area.write("@Makefile and", (gone,))
    await prompt.until(lambda: prompt.title == "Makefile · 1 token")
    await prompt.press("enter")
    assert [one.attachments for one in prompt.sent] == [(gone,)]


@pytest.mark.slow
async def test_the_space_after_a_completion_is_not_doubled(prompt: Prompting, folder: Path) -> None:
    await prompt.type("@nor")
    await prompt.press("tab")
    await prompt.type(" x")
    assert prompt.text == "@north.txt x"
    await prompt.type("  y")
    assert prompt.text == "@north.txt x  y"
    prompt.area.write("see @nor now")
    prompt.area.move_cursor((0, len("see @nor")))
    await prompt.press("tab", "x")
    assert prompt.text == "see @north.txt xnow"


async def listed(prompt: Prompting, text: str, rows: int) -> list[str]:
    """Suggestions on the screen after moving down."""
    await prompt.type(text)
    await prompt.press(*["down"] * rows)
    completion = prompt.app.query_one(Completion)
    top = completion.region.y
    return [line.strip() for line in (await prompt.lines())[top : top + completion.size.height]]


@pytest.mark.slow
async def test_a_long_list_of_files_scrolls(prompt: Prompting, folder: Path) -> None:
    for number in range(20):
        (folder / f"page {number:02}.txt").touch()
    shown = await listed(prompt, "@page", 19)
    assert "page 19.txt" in shown[-1]
    await prompt.press("tab")
    assert prompt.text == '@"page 19.txt" '


async def test_a_very_long_list_of_files_says_how_many_more(
    prompt: Prompting, folder: Path
) -> None:
    for number in range(300):
        (folder / f"page{number:03}").touch()
    await prompt.type("@page")
    completion = prompt.app.query_one(Completion)
    assert completion.option_count == 201
    assert str(completion.get_option_at_index(200).prompt) == "… 100 more: type on"


@pytest.mark.parametrize("size", [(80, 24), (40, 20)])
async def test_every_command_can_be_reached(size: tuple[int, int]) -> None:
    async with prompting(size) as prompt:
        shown = await listed(prompt, "/", 0)
        assert shown[0].startswith("/new")
        assert not any(line.startswith("/stop") for line in shown)
        await prompt.press("up")
        completion = prompt.app.query_one(Completion)
        await prompt.until(lambda: completion.scroll_y == completion.max_scroll_y)
        assert any("/stop" in line for line in await prompt.lines())
        await prompt.press("escape")
        assert prompt.text == "/"


async def test_the_keys_of_a_list_are_those_of_its_kind(prompt: Prompting) -> None:
    await prompt.type("@n")
    assert "Enter fill in" in (await prompt.lines())[-1]
    assert "run" not in (await prompt.lines())[-1]
    prompt.area.write("/")
    prompt.area.suggest()
    await prompt.until(lambda: prompt.store.completing == "/")
    assert "Enter run" in (await prompt.lines())[-1]
