"""Folders of questions: whole if they fit, else passages; nothing goes in twice, changes do."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.named_files import read_files
from app.dialogue.dialogue import Dialogue
from app.dialogue.libraries import Asked, Libraries, folder_path, vectors_of
from app.dialogue.tree import USER, Turn
from app.documents.library import Library, most_tokens
from app.history import History
from app.history.store import index_of
from app.paths import Paths
from backends.base import UsageError

_LONG = "The third clause is about the deposit of the tenant. " * 12
FILE, PASSAGE = AttachmentKind.FILE, AttachmentKind.PASSAGE


@pytest.fixture
def libraries(tmp_path: Path) -> Iterator[Libraries]:
    found = Libraries(Paths(tmp_path / "c", tmp_path / "d", tmp_path / "e"))
    yield found
    found.close()


def _asked(
    text: str,
    files: tuple[Attachment, ...] = (),
    before: Sequence[Turn] = (),
    folder: str = "",
    n_ctx: int = 4096,
    chat: int | None = None,
) -> Asked:
    dialogue = Dialogue(None)
    dialogue.folder, dialogue._saver.chat = folder, chat
    return Asked(dialogue, text, files, before, n_ctx)


def _names(attachments: tuple[Attachment, ...]) -> list[str]:
    return [one.name for one in attachments]


def _asked_tokens(attachments: tuple[Attachment, ...]) -> int:
    return sum(most_tokens(len(one.text.encode())) for one in attachments)


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(60_000):
        if holds():
            return
        Event().wait(0.001)
    raise AssertionError("it never holds")


def test_a_small_folder_goes_in_whole_once_and_what_changed_again(
    notes: Path, libraries: Libraries
) -> None:
    dialogue = Dialogue(None)
    dialogue.set_folder(str(notes))

    def asked(text: str) -> list[str]:
        question = Asked(dialogue, text, (), tuple(dialogue.turns), 4096)
        found, _ = libraries.found(question, math.inf)
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


def test_a_large_folder_is_searched_and_passages_are_numbered_on(
    notes: Path, libraries: Libraries
) -> None:
    for number in range(30):
        (notes / f"{number:02}.md").write_text(f"# Clause {number}\n\n{_LONG}\n")
    turns: list[Turn] = []

    def asked(text: str) -> list[str]:
        found, _ = libraries.found(_asked(text, (), tuple(turns), str(notes)), math.inf)
        assert {one.kind for one in found} <= {PASSAGE}
        assert sum(len(one.text) for one in found) <= 4096
        turns.append(Turn(USER, text, attachments=found))
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


def test_folders_that_a_message_names(notes: Path, libraries: Libraries) -> None:
    (notes / "c.txt").write_text("The bird is called Tweety.")

    def found(text: str) -> list[str]:
        attached, told = libraries.found(_asked(text), math.inf)
        assert told == []
        return _names(attached)

    assert found("Who is in @notes/?") == ["notes/a.md", "notes/b.md", "notes/c.txt"]
    assert found("Who is in @notes/*.txt?") == ["notes/c.txt"]
    assert found("Nobody is in @nowhere/ or @notes/a.md") == []
    assert found("Who is in @notes/*.md?") == ["notes/a.md", "notes/b.md"]
    assert libraries.about(_asked("@notes/*.md")) == "notes/*.md · 2 files · 46 bytes"
    assert libraries.about(_asked("nothing")) == ""
    before = libraries.state(_asked("@notes/"))
    (notes / "d.md").write_text("The fish has no name.")
    assert found("@notes/ again")[-1] == "notes/d.md"
    assert libraries.state(_asked("@notes/")) != before


def test_a_chats_folder_is_watched_kept_and_left(notes: Path, libraries: Libraries) -> None:
    asked = _asked("x", folder=str(notes))
    assert libraries.found(asked, math.inf)[0] != ()
    own = libraries.own
    assert own is not None
    assert libraries.words == "notes"
    asked.dialogue._saver.chat = 7  # it has been saved
    libraries.state(asked)
    paths = libraries._paths
    assert paths is not None
    _until(lambda: own._file == index_of(paths, 7))
    version = own.version

    def is_seen() -> bool:
        (notes / "b.md").write_text(f"The cat is called {version} {own.version}.")
        return own.version > version

    _until(is_seen)  # without any question
    asked.dialogue.folder = ""
    assert libraries.state(asked) == ()
    assert (libraries.own, libraries.words) == (None, "")
    assert not index_of(paths, 7).exists()
    assert libraries.found(asked, math.inf) == ((), [])


def test_what_is_not_read_in_time_is_told(
    notes: Path, libraries: Libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = Event()
    refresh = Library._refresh

    def slow(self: Library, is_wanted: Callable[[], bool]) -> bool:
        goes_on.wait()
        return refresh(self, is_wanted)

    monkeypatch.setattr(Library, "_refresh", slow)
    asked = _asked("x", folder=str(notes))
    assert libraries.found(asked, 0.01)[1] == ["notes is read to 0 %: only that was searched"]
    assert libraries.found(asked) == ((), [])
    goes_on.set()
    found, told = libraries.found(asked, math.inf)
    assert (_names(found), told) == (["notes/a.md", "notes/b.md"], [])
    (notes / "c.pdf").write_bytes(b"%PDF-1.7\n\0")
    assert len(libraries.found(asked, math.inf)[1]) == 1
    assert libraries.found(asked, math.inf)[1] == []  # it was told


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
        return libraries.found(_asked(text, files, n_ctx=n_ctx), math.inf)[0]

    note, *passages = asked(4096)
    assert (note.name, note.text) == ("note.txt", "short")
    assert {one.kind for one in passages} == {PASSAGE}
    assert any("heron nests" in one.text and "book.md, lines" in one.name for one in passages)
    assert sum(len(one.text) for one in passages) < len(files[1].text) / 4
    of_all = {"note.txt": "short", "book.md": files[1].text}
    assert libraries.all_of(_asked(text, files), math.inf) == of_all
    history = History.open(tmp_path / "chats.sqlite3")
    dialogue = Dialogue(history)
    dialogue.add(USER, text, (note, *passages))
    with closing(Libraries()) as restarted, closing(history):
        again = Dialogue(history)
        again.open(dialogue.chat or 0)

        def later(turns: Sequence[Turn], question: str = "The harbour?") -> list[str]:
            found, told = restarted.found(_asked(question, (), tuple(turns)), math.inf)
            assert not told
            return [one.text for one in found]

        assert restarted.all_of(_asked("", (), again.turns), math.inf) == of_all
        read = again.turns[0].attachments
        again.turns[0].attachments = tuple(one for one in read if "heron" not in one.text)
        assert any("heron nests" in one for one in later(again.turns))  # it is about the book too
        assert later([]) == []  # a question of another chat is not
        whole = Turn(USER, "@note.txt @book.md?", attachments=files)
        assert later([whole]) == []  # nor is one after all of it
        noted = Attachment(FILE, "notes on all parts", "None of 3 parts says anything.")
        assert later([Turn(USER, text, attachments=(note, noted))])
    assert asked(65_536) == files
    assert asked(4096) == (note, *passages)


def _embedded(libraries: Libraries) -> int:
    assert libraries.own is not None
    return libraries.own._rows("SELECT count(*) FROM vectors")[0][0]


def test_passages_give_way_to_a_long_question_and_it_is_told_if_none_fits(
    tmp_path: Path, libraries: Libraries
) -> None:
    (book := tmp_path / "book.md").write_text(f"{_LONG}\n\n" * 20)
    asked = _asked("Deposit? " * 1100, folder=str(book))
    assert _asked_tokens(found := libraries.found(asked, math.inf)[0]) < 300
    assert found
    assert libraries.unread == {}
    for question, n_ctx in (("Deposit? " * 1300, 4096), ("Deposit?", 512)):
        asked = _asked(question, folder=str(book), n_ctx=n_ctx)
        found, told = libraries.found(asked, math.inf)
        assert found == ()
        assert told == list(libraries.unread.values())
        assert re.match(r"none of \d\d passages of book.md were read: .* --ctx", told[0])
        libraries.found(replace(asked, text=question, n_ctx=8192), math.inf)
        assert libraries.unread == {}
    read = libraries.found(_asked("Deposit?", folder=str(book)), math.inf)[0]
    before = [Turn(USER, "Deposit?", attachments=read)]
    assert libraries.found(
        _asked("Deposit?", before=before, folder=str(book), n_ctx=512), math.inf
    ) == ((), [])


def test_vectors_are_made_between_answers_and_go_with_the_chat(
    notes: Path, paths: Paths, bert_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")
    assert vectors_of(paths, lambda: True) is None
    monkeypatch.setenv("SPECCHAT_EMBEDDING_MODEL", str(bert_file))
    is_free = Event()
    vectors = vectors_of(paths, is_free.is_set)
    assert vectors is not None
    libraries = Libraries(paths, vectors)
    asked = _asked("What is the dog called?", folder=str(notes), chat=1)
    found, told = libraries.found(asked, math.inf)
    assert (_names(found), told) == (["notes/a.md", "notes/b.md"], [])
    assert (_embedded(libraries), vectors.of_question("dog")) == (0, None)  # an answer is going on
    before = libraries.state(asked)
    is_free.set()
    _until(lambda: libraries.state(asked) != before)
    assert _embedded(libraries) == 2
    row = vectors.of_question("dog")
    assert row is not None
    assert (vectors.of_question("dog") is row, row.shape) == (True, (32,))
    (notes / "c.md").write_text("The horse is called Lotte.")
    _until(lambda: _embedded(libraries) == 3)
    found, told = libraries.found(asked, math.inf)
    assert (len(found), told) == (3, [])
    file = index_of(paths, 1)
    assert b"horse" in file.read_bytes()
    asked.dialogue.folder = ""
    libraries.found(asked)
    assert not file.exists()
    libraries.close()
    assert vectors.of_question("cat") is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing.gguf", "no file nothing.gguf"),
        ("nomic-embed-text", "specchat models pull nomic-embed-text"),
        ("demo", "is no embedding model"),
    ],
)
def test_a_model_that_cannot_embed_is_told_once_and_words_are_searched(
    notes: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")
    monkeypatch.setenv("SPECCHAT_EMBEDDING_MODEL", name)
    vectors = vectors_of(paths, lambda: True)
    assert vectors is not None
    libraries = Libraries(paths, vectors)
    asked = _asked("What is the dog called?", folder=str(notes), chat=1)
    libraries.found(asked)
    _until(lambda: bool(vectors.fault))
    found, (told,) = libraries.found(asked, math.inf)
    assert len(found) == 2
    assert re.search(why, told)
    assert libraries.found(asked, math.inf)[1] == []
    libraries.close()
