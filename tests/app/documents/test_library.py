"""The index of a folder's passages."""

import json
from pathlib import Path

from app.documents.library import Library


def test_a_folder_is_read_and_looked_up(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "b.md").write_text("# Cats\n\nThe cat is called Minka.\n")
    (tmp_path / "notes" / "a.md").write_text("# Dogs\n\nThe dog is called Rex.\n")
    library = Library(str(tmp_path / "notes"))
    library.refresh()
    texts = [("notes/a.md", "# Dogs\n\nThe dog is called Rex.\n")]
    texts += [("notes/b.md", "# Cats\n\nThe cat is called Minka.\n")]
    assert list(library.texts()) == texts
    assert library.size == sum(len(text) for _, text in texts)
    (found,) = library.search("Which names have cats?", 15)
    assert found.place == "notes/b.md, lines 1 to 3"


_DOCUMENTS = Path(__file__).parents[2] / "fixtures" / "documents"
_QUESTIONS = _DOCUMENTS.with_name("document_questions.json")


def test_of_fifty_questions_nine_in_ten_find_their_passage() -> None:
    library = Library(str(_DOCUMENTS))
    library.refresh()
    questions = json.loads(_QUESTIONS.read_text("utf-8"))
    found = [
        any(one["passage"] in passage.text for passage in library.search(one["question"], 2000))
        for one in questions
    ]
    assert len(found) == 50
    assert sum(one.get("other_words", False) for one in questions) >= 16
    assert sum(found) >= 45
