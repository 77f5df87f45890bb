"""The index of a folder's passages: up to date, found by question, made again when damaged."""

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from app.documents import library as module
from app.documents.library import Library, remove_index
from app.documents.passages import Passage

_DOCUMENTS = Path(__file__).parents[2] / "fixtures" / "library"
_QUESTIONS = _DOCUMENTS.with_name("library_questions.json")
_DOGS, _CATS = "# Dogs\n\nThe dog is called Rex.\n", "# Cats\n\nThe cat is called Minka.\n"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "b.md").write_text(_CATS)
    (folder / "a.md").write_text(_DOGS)
    return folder


def _read(folder: Path, file: Path | None = None) -> Library:
    library = Library(str(folder), file)
    assert library.refresh()
    return library


def _places(library: Library, question: str, tokens: int = 1000) -> list[str]:
    return [one.place for one in library.search(question, tokens)]


def test_a_folder_is_read_and_looked_up(notes: Path) -> None:
    with closing(_read(notes)) as library:
        assert list(library.texts()) == [("notes/a.md", _DOGS), ("notes/b.md", _CATS)]
        assert (library.size, library.count) == (len(_DOGS) + len(_CATS), 2)
        assert library.path_of("notes/a.md") == notes / "a.md"
        assert _places(library, "Which names have cats?") == ["notes/b.md, lines 1 to 3"]
        assert _places(library, "dog cat", 15) in (
            [f"notes/{name}.md, lines 1 to 3"] for name in "ab"
        )
        assert _places(library, "Summarise it!") == [f"notes/{n}.md, lines 1 to 3" for n in "ab"]
        assert library.search("", 0) == []


def test_of_fifty_questions_nine_in_ten_find_their_passage() -> None:
    questions = json.loads(_QUESTIONS.read_text("utf-8"))
    with closing(_read(_DOCUMENTS)) as library:
        found = [
            any(one["passage"] in passage.text for passage in library.search(one["question"], 2000))
            for one in questions
        ]
    assert len(found) == 50
    assert sum(one.get("other_words", False) for one in questions) >= 16
    assert sum(found) >= 45


def test_what_a_question_may_hold(notes: Path) -> None:
    (notes / "c.py").write_text("class DogHouse:\n    def open_door(self): ...\n")
    (notes / "d.txt").write_text("合同的付款期限是三十天。违约金为百分之五。\n")
    (notes / "e.txt").write_text("Die Kündigungsfrist beträgt sechs Wochen.\n")
    with closing(_read(notes)) as library:
        assert _places(library, '"cat" OR NOT (dog* NEAR/3 ^x) : - \0 {a}') != []
        assert _places(library, "open door of the dog house")[-1].startswith("notes/c.py")
        assert _places(library, "doorHouse") == ["notes/c.py, lines 1 to 2"]
        assert _places(library, "付款期限多久") == ["notes/d.txt, line 1"]
        assert _places(library, "Wann kann ich kündigen?") == ["notes/e.txt, line 1"]
        for word in ("a" * 5000, "x " * 5000, "\ud800", "'", '"'):
            library.search(word, 100)


def test_the_question_before_helps_and_what_is_known_is_left_out(notes: Path) -> None:
    with closing(_read(notes)) as library:
        assert library.search("And what is it called?", 1000, "Tell me about the cat") != []
        first = library.search("cat", 1000)
        assert library.search("cat", 1000, is_known=first.__contains__) == []
        named = library.search("And its name?", 25, "the dog")
        assert [one.path for one in named] == ["notes/a.md"]


def _all(library: Library) -> list[tuple[Passage, list[str]]]:
    """All that an index holds, in words: its passages, and what is found of each."""
    return [(one, _places(library, one.text, 5000)) for one in library.search("", 100_000)] + [
        (Passage(name, 0, 0, 0, "", text), []) for name, text in library.texts()
    ]


class _Themes:
    """Vectors of what a text is about, by the words in it; what is read is noted."""

    words = (("cat", "kitten", "purrs"), ("dog", "hound", "barks"), ("house", "roof"))

    def __init__(self, identity: str = "themes") -> None:
        self.identity = identity
        self.read: list[str] = []

    def of_question(self, text: str) -> NDArray[np.float32]:
        counts = [sum(map(text.lower().count, words)) for words in self.words]
        row = np.array([*counts, 0.1], np.float32)
        return (row / np.linalg.norm(row)).astype(np.float32)

    def of_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.read += texts
        return np.array([self.of_question(text) for text in texts])


def test_what_is_meant_is_found_in_other_words(notes: Path, tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite3"
    (notes / "c.md").write_text("# Roofs\n\nWho purrs? Nobody knows: it is a question of names.\n")
    with closing(_read(notes, file)) as library:
        version, themes = library.version, _Themes()
        assert _places(library, "name of the kitten", 12) == []  # the words are in c.md alone
        library.embed(themes)
        assert (len(themes.read), library.version) == (3, version + 1)
        assert _places(library, "kitten", 15) == ["notes/b.md, lines 1 to 3"]
        assert _places(library, "the kitten", 15) == ["notes/b.md, lines 1 to 3"]
        assert _places(library, "hound", 15) == ["notes/a.md, lines 1 to 3"]
        assert [one.path for one in library.search("age?", 15, "the hound")] == ["notes/a.md"]
        assert _places(library, "So why?")[0] == "notes/a.md, lines 1 to 3"  # an opening
        # Both count: the words of a question outdo what only sounds like it.
        assert _places(library, "a question of names and nobody", 25) == [
            "notes/c.md, lines 1 to 3"
        ]
        library.embed(themes)
        assert (len(themes.read), library.version) == (3, version + 1)
        (notes / "b.md").write_text("The hound has gone.")
        (notes / "a.md").unlink()
        library.refresh()
        assert _places(library, "kitten", 30) == ["notes/c.md, lines 1 to 3"]
        library.embed(themes)
        assert themes.read[3:] == ["The hound has gone."]
        assert _places(library, "dog", 12) == ["notes/b.md, line 1"]
        for number in range(module._EMBEDDED_TOGETHER):
            (notes / f"{number}.md").write_text(f"Roof {number}.")
        library.refresh()
        version = library.version
        library.embed(themes)
        assert library.version == version + 1
        for number in range(module._EMBEDDED_TOGETHER):
            (notes / f"{number}.md").unlink()
        library.refresh()
    assert os.name == "nt" or file.stat().st_mode & 0o777 == 0o600
    with closing(_read(notes, file)) as again:  # what is kept is used again
        again.embed(kept := _Themes())
        assert kept.read == []
        assert _places(again, "dog", 12) == ["notes/b.md, line 1"]
        again.embed(other := _Themes("another model"))
        assert len(other.read) == 2
        again.embed(None)
        assert _places(again, "hound puppy dog", 12) == ["notes/b.md, line 1"]  # by its word
        assert again._rows("SELECT count(*) FROM vectors") == [(0,)]


def test_vectors_are_those_of_the_passages_that_are_there(notes: Path) -> None:
    """A passage that is replaced while its vector is computed keeps none; stopping loses none."""

    class _Slow(_Themes):
        def of_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
            if not self.read:
                (notes / "b.md").write_text("A hound that barks.")
                library.refresh()
            return super().of_passages(texts)

    with closing(_read(notes)) as library:
        library.embed(themes := _Slow(), lambda: not themes.read)
        (kept,) = library._rows("SELECT text FROM vectors JOIN passages USING (number)")
        assert kept == (_DOGS,)
        library.embed(themes, lambda: False)
        assert library._rows("SELECT count(*) FROM vectors") == [(1,)]
        library.embed(themes)
        stored = library._rows("SELECT text, row FROM vectors JOIN passages USING (number)")
        assert len(stored) == 2
        for text, row in stored:
            found = np.frombuffer(row, np.float16)
            assert found == pytest.approx(themes.of_question(text), abs=1e-3)


def _change(folder: Path, random: Random) -> None:
    name = random.choice(["a.md", "b.md", "x.py", "in/y.md", "in/z.md", "big.txt"])
    path = folder / name
    if path.exists() and random.random() < 0.4:
        path.unlink()
        return
    path.parent.mkdir(exist_ok=True)
    words = ["cat", "dog", "house", "# Heading\n", "\n\n", "def f():\n", "词语", "\0", "long " * 50]
    path.write_text("".join(f"{random.choice(words)} " for _ in range(random.randint(0, 60))))
    os.utime(path, ns=(random.randrange(10**18), random.randrange(10**18)))


@pytest.mark.parametrize("count", [10, pytest.param(500, marks=pytest.mark.nightly)])
def test_after_any_changes_an_index_is_a_fresh_one(notes: Path, tmp_path: Path, count: int) -> None:
    for seed in range(count):
        random = Random(seed)
        file = tmp_path / "index.sqlite3"
        with closing(Library(str(notes), file)) as library:
            for _ in range(random.randint(1, 4)):
                for _ in range(random.randint(1, 3)):
                    _change(notes, random)
                library.refresh()
                if random.random() < 0.5:
                    library.embed(_Themes(random.choice("ab")))
            library.embed(_Themes())
            with closing(_read(notes)) as fresh:
                fresh.embed(_Themes())
                assert _all(library) == _all(fresh), seed
            raw = library._database.execute("SELECT count(*) FROM words_docsize").fetchone()
            assert raw == library._database.execute("SELECT count(*) FROM passages").fetchone()


def test_only_what_has_changed_is_read(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    reads = module.read

    def counting(path: Path) -> object:
        read.append(path.name)
        return reads(path)

    with closing(_read(notes)) as library:
        monkeypatch.setattr(module, "read", counting)
        version = library.version
        assert library.refresh()
        assert (read, library.version) == ([], version)
        os.utime(notes / "a.md", ns=(1, 1))
        library.refresh()
        assert read == ["a.md"]  # touched only: its text stays as it is
        (notes / "b.md").write_text("The cat is gone.")
        library.refresh()
        assert read == ["a.md", "b.md"]
        assert dict(library.texts())["notes/b.md"] == "The cat is gone."
        assert library.version > version


def test_an_index_is_kept_in_a_file_and_taken_over(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "data" / "index.sqlite3"
    with closing(_read(notes)) as library:
        library.keep_in(file)
        with closing(Library(str(notes), file)) as other:  # of another window, in memory
            assert other.refresh()
            assert list(other.texts()) == list(library.texts())
            other.keep_in(file)
    monkeypatch.setattr(module, "read", lambda _path: pytest.fail("it is read again"))
    with closing(_read(notes, file)) as again:
        assert _places(again, "cat") == ["notes/b.md, lines 1 to 3"]
    remove_index(file)
    assert list(file.parent.iterdir()) == []


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def _fill(file: Path) -> None:
    file.write_bytes(b"\xee" * 9000)


def _age(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize("damage", [_cut, _fill, _age])
def test_a_damaged_index_is_made_again(
    notes: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    file = tmp_path / "index.sqlite3"
    _read(notes, file).close()
    damage(file)
    with closing(_read(notes, file)) as library:
        assert _places(library, "cat") == ["notes/b.md, lines 1 to 3"]
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT count(*) FROM files").fetchone() == (2,)


def test_damage_that_is_met_in_use_is_mended_in_use(notes: Path, tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite3"
    with closing(_read(notes, file)) as library:
        library._database.execute("PRAGMA cache_size = 0")
        with file.open("r+b") as raw:
            raw.seek(4096)
            raw.write(b"\xee" * (file.stat().st_size - 4096))
        library._database.execute("PRAGMA shrink_memory")
        assert _places(library, "cat") == ["notes/b.md, lines 1 to 3"]
        assert not file.exists()


def test_what_is_left_out_is_told(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (notes / "c.pdf").write_bytes(b"%PDF-1.7\n\0 nothing")
    with closing(_read(notes)) as library:
        (fault,) = library.faults
        assert fault.startswith("notes/c.pdf ")
        assert library.count == 2
    (notes / "c.pdf").unlink()
    monkeypatch.setattr(module, "MOST_TEXT", 10)
    monkeypatch.setattr(module, "_BATCH", 1)
    with closing(_read(notes)) as library:
        assert library.faults == (f"{notes} has more than 10 characters of text",)
        assert [name for name, _ in library.texts()] == ["notes/a.md"]


def test_reading_can_be_stopped_and_goes_on(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 1)
    library = Library(str(notes))
    with closing(library):
        assert not library.refresh(lambda: library.count < 1)
        assert (library.count, library.is_complete, library.progress) == (1, False, (0, 2))
        assert library.refresh()
        assert (library.count, library.is_complete, library.progress) == (2, True, (2, 2))
