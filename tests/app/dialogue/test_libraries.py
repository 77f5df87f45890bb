"""Folders of questions: whole if they fit, else passages; nothing goes in twice, changes do."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.named_files import read_files
from app.dialogue.dialogue import Dialogue
from app.dialogue.libraries import Libraries, Talk, attachments_of, folder_path, read_now
from app.dialogue.tree import USER
from app.documents.library import Library
from app.history import History
from app.history.store import index_of
from app.paths import Paths
from backends.base import UsageError

_LONG = "The third clause is about the deposit of the tenant. " * 12
FILE, PASSAGE = AttachmentKind.FILE, AttachmentKind.PASSAGE


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("The dog is called Rex.")
    (folder / "b.md").write_text("The cat is called Minka.")
    return folder


@pytest.fixture
def libraries(tmp_path: Path) -> Iterator[Libraries]:
    found = Libraries(Paths(tmp_path / "c", tmp_path / "d", tmp_path / "e"))
    yield found
    found.close()


def _names(attachments: tuple[Attachment, ...]) -> list[str]:
    return [one.name for one in attachments]


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(60_000):
        if holds():
            return
        Event().wait(0.001)
    raise AssertionError("it never holds")


def test_a_small_folder_goes_in_whole_once_and_what_changed_again(notes: Path) -> None:
    library = read_now(str(notes))
    dialogue = Dialogue(None)

    def asked(text: str) -> list[str]:
        library.refresh()
        talk = Talk.of(dialogue.turns, dialogue.dropped)
        found = attachments_of([library], text, talk, 4096)
        assert all(one.kind is FILE for one in found)
        dialogue.add(USER, text, found)
        return _names(found)

    assert asked("Who is it?") == ["notes/a.md", "notes/b.md"]
    assert asked("Who is it?") == []
    (notes / "b.md").write_text("The cat is called Mimi.")
    (notes / "a.md").unlink()
    assert asked("And now?") == ["notes/b.md"]
    assert dialogue.turns[-1].attachments[0].text == "The cat is called Mimi."
    assert asked("And now?") == []
    dialogue.dropped = 3  # what was read no longer fits the context
    assert asked("And now?") == ["notes/b.md"]
    library.close()


def test_a_large_folder_is_searched_and_passages_are_numbered_on(notes: Path) -> None:
    for number in range(30):
        (notes / f"{number:02}.md").write_text(f"# Clause {number}\n\n{_LONG}\n")
    library = read_now(str(notes))
    dialogue = Dialogue(None)

    def asked(text: str) -> list[str]:
        talk = Talk.of(dialogue.turns, dialogue.dropped)
        found = attachments_of([library], text, talk, 4096)
        assert {one.kind for one in found} <= {PASSAGE}
        assert sum(len(one.text) for one in found) <= 4096
        dialogue.add(USER, text, found)
        return _names(found)

    first = asked("What is the dog called?")
    assert first == ["[1] notes/a.md, line 1", "[2] notes/b.md, line 1"]
    again = asked("Is it a dog?")
    assert not any("notes/a.md" in name for name in again)
    clause = asked("What does clause 17 say?")
    numbers = [name.partition("]")[0] for name in [*first, *again, *clause]]
    assert numbers == [f"[{number}" for number in range(1, len(numbers) + 1)]
    assert any("17.md" in name for name in clause)
    places = [name.partition(" ")[2] for name in clause]
    assert places == sorted(places)
    library.close()


def test_folders_that_a_message_names(notes: Path, libraries: Libraries) -> None:
    (notes / "c.txt").write_text("The bird is called Tweety.")

    def found(text: str) -> list[str]:
        attached, told = libraries.found(text, Talk(), 4096, math.inf)
        assert told == []
        return _names(attached)

    assert found("Who is in @notes/?") == ["notes/a.md", "notes/b.md", "notes/c.txt"]
    assert found("Who is in @notes/*.txt?") == ["notes/c.txt"]
    assert found("Nobody is in @nowhere/ or @notes/a.md") == []
    assert found("Who is in @notes/*.md?") == ["notes/a.md", "notes/b.md"]
    assert libraries.about("@notes/*.md") == "notes/*.md · 2 files · 46 bytes"
    assert libraries.about("nothing") == ""
    before = libraries.state("@notes/")
    (notes / "d.md").write_text("The fish has no name.")
    assert found("@notes/ again")[-1] == "notes/d.md"
    assert libraries.state("@notes/") != before


def test_a_chats_folder_is_watched_kept_and_left(notes: Path, libraries: Libraries) -> None:
    libraries.follow(str(notes), None)
    assert libraries.found("x", Talk(), 4096, math.inf)[0] != ()
    own = libraries.own
    assert own is not None
    assert libraries.words == "notes"
    libraries.follow(str(notes), 7)  # it has been saved
    paths = libraries._paths
    assert paths is not None
    _until(lambda: own._file == index_of(paths, 7))
    version = own.version

    def is_seen() -> bool:
        (notes / "b.md").write_text(f"The cat is called {version} {own.version}.")
        return own.version > version

    _until(is_seen)  # without any question
    libraries.follow("", 7)
    assert (libraries.own, libraries.words) == (None, "")
    assert not index_of(paths, 7).exists()
    assert libraries.found("x", Talk(), 4096, math.inf) == ((), [])


def test_what_is_not_read_in_time_is_told(
    notes: Path, libraries: Libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = Event()
    refresh = Library._refresh

    def slow(self: Library, is_wanted: Callable[[], bool]) -> bool:
        goes_on.wait()
        return refresh(self, is_wanted)

    monkeypatch.setattr(Library, "_refresh", slow)
    libraries.follow(str(notes))
    assert libraries.found("x", Talk(), 4096, 0.01)[1] == [
        "notes is read to 0 %: only that was searched"
    ]
    assert libraries.found("x", Talk(), 4096) == ((), [])
    goes_on.set()
    found, told = libraries.found("x", Talk(), 4096, math.inf)
    assert (_names(found), told) == (["notes/a.md", "notes/b.md"], [])
    (notes / "c.pdf").write_bytes(b"%PDF-1.7\n\0")
    assert len(libraries.found("x", Talk(), 4096, math.inf)[1]) == 1
    assert libraries.found("x", Talk(), 4096, math.inf)[1] == []  # it was told


def test_the_folder_of_a_chat_is_saved_with_it(notes: Path, tmp_path: Path) -> None:
    history = History.open(tmp_path / "chats.sqlite3")
    dialogue = Dialogue(history)
    dialogue.set_folder(folder_path("notes/"))
    dialogue.add(USER, "Who?")
    other = Dialogue(history)
    assert dialogue.chat is not None
    other.open(dialogue.chat)
    assert other.folder == str(notes)
    other.set_folder("")
    dialogue.refresh()
    dialogue.reread()
    assert dialogue.folder == ""
    history.close()
    with pytest.raises(UsageError, match="no folder nowhere"):
        folder_path("nowhere")


def test_a_file_too_long_for_the_context_is_searched_and_goes_in_whole_into_a_larger_one(
    tmp_path: Path, libraries: Libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parts = [f"## Part {number}\n\n{_LONG}" for number in range(40)]
    parts[17] += "The heron nests in the harbour."
    Path("book.md").write_text("\n\n".join(parts))
    Path("note.txt").write_text("short")
    text = "@note.txt @book.md Where does the heron nest?"
    files, faults = read_files(text)
    assert not faults

    def asked(n_ctx: int) -> tuple[Attachment, ...]:
        return libraries.found(text, Talk(), n_ctx, math.inf, files)[0]

    note, *passages = asked(4096)
    assert (note.name, note.text) == ("note.txt", "short")
    assert {one.kind for one in passages} == {PASSAGE}
    assert any("heron nests" in one.text and "book.md, lines" in one.name for one in passages)
    assert sum(len(one.text) for one in passages) < len(files[1].text) / 4
    assert "".join(libraries.texts(text, math.inf).values()) == files[1].text  # /read all
    later, _ = libraries.found("And what else nests there?", Talk(), 4096, math.inf)
    assert any("heron nests" in one.text for one in later)  # a later question is about it too
    libraries.follow("", 1)
    libraries.follow("", 2)
    assert libraries.found("And what else nests there?", Talk(), 4096, math.inf)[0] == ()
    assert asked(65_536) == files
    assert asked(4096) == (note, *passages)
