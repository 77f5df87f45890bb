"""The index of a folder's passages."""

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
