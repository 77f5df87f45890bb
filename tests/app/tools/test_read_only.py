"""Tools of our own: what they find, what they leave out, and where they cannot go."""

import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tools import read_only
from app.tools.read_only import MOST_CHARACTERS, TOOLS, run
from backends.base import ToolError
from backends.chat.tools import as_object

SECRET = "the secret of the outside"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """notes/, beside what must not be read, with links and dots that lead there."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.txt").write_text(SECRET)
    notes = outside / "notes"
    (notes / "deep" / "er").mkdir(parents=True)
    (notes / "plan.md").write_text("".join(f"line {number}\n" for number in range(1, 301)))
    (notes / "deep" / "tea.txt").write_text("Green tea\nblack TEA and milk\nmilk\n")
    (notes / "deep" / "er" / "empty").write_text("")
    (notes / "binary").write_bytes(b"\xff\x00" * 100)
    (notes / ".env").write_text(SECRET)
    (notes / ".git").mkdir()
    (notes / ".git" / "config").write_text(SECRET)
    (notes / "link.txt").symlink_to(outside / "secret.txt")
    (notes / "linked").symlink_to(outside)
    (notes / "inner.md").symlink_to(notes / "plan.md")
    (notes / "loop").symlink_to(notes / "loop")
    return notes


def test_lists_a_folder_without_hidden_files_and_links_that_lead_out(folder: Path) -> None:
    assert run("list_files", {}, [folder]) == "notes/"
    listed = run("list_files", {"folder": "notes"}, [folder]).splitlines()
    assert [line.split()[0] for line in listed] == ["binary", "deep/", "inner.md", "plan.md"]
    assert run("list_files", {"folder": "deep/er"}, [folder]).startswith("empty")


def test_reads_lines_and_says_which(folder: Path) -> None:
    text = run("read_lines", {"path": "notes/plan.md", "first": 12, "last": 14}, [folder])
    assert text == "notes/plan.md, lines 12 to 14 of 300:\nline 12\nline 13\nline 14"
    assert run("read_lines", {"path": "plan.md"}, [folder]).endswith("line 200")
    assert "lines 300 to 300" in run("read_lines", {"path": "plan.md", "first": "300"}, [folder])
    with pytest.raises(ToolError, match="has 300 lines"):
        run("read_lines", {"path": "plan.md", "first": 301}, [folder])


def test_searches_for_lines_that_hold_most_of_the_words(folder: Path) -> None:
    assert run("search", {"words": "tea"}, [folder]).splitlines() == [
        "notes/deep/tea.txt:1: Green tea",
        "notes/deep/tea.txt:2: black TEA and milk",
    ]
    found = run("search", {"words": "milk, tea?", "folder": "notes/deep"}, [folder])
    assert found == "notes/deep/tea.txt:2: black TEA and milk"
    assert run("search", {"words": "nowhere"}, [folder]) == "nothing was found"
    assert "(250 more lines)" in run("search", {"words": "line"}, [folder])


PATHS = (
    "../secret.txt", "notes/../../outside/secret.txt", "link.txt", "linked/secret.txt", ".env",
    "notes/.git/config", "/etc/passwd", "~/.ssh/id_rsa", "\0", "deep/../../secret.txt", "loop",
    "file:///etc/passwd", "http://127.0.0.1/", "a" * 5_000, "notes/deep/../.env",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_nothing_outside_is_read(folder: Path, path: str) -> None:
    for name, arguments in (
        ("read_lines", {"path": path}),
        ("list_files", {"folder": path}),
        ("search", {"words": "secret", "folder": path}),
    ):
        with pytest.raises(ToolError):
            run(name, arguments, [folder])


def test_an_absolute_path_within_is_read(folder: Path) -> None:
    assert "Green" in run("read_lines", {"path": str(folder / "deep" / "tea.txt")}, [folder])


@settings(max_examples=50)
@given(
    st.sampled_from([tool.name for tool in TOOLS]),
    st.dictionaries(
        st.sampled_from(["path", "folder", "words", "first", "last"]),
        st.one_of(
            st.none(), st.integers(), st.floats(), st.booleans(),
            st.lists(st.sampled_from(["..", ".", "linked", "notes", "deep", "secret.txt", ".git",
                                      "", "~", "link.txt", "\ud800"])).map("/".join),
            st.text(max_size=20),
        ),
    ),
)  # fmt: skip
def test_whatever_a_model_asks_for_stays_within_and_is_bounded(
    folder: Path, name: str, arguments: dict[str, object]
) -> None:
    try:
        text = run(name, arguments, [folder])
    except ToolError as error:
        text = error.summary
    assert SECRET not in text
    assert len(text) <= MOST_CHARACTERS + 100
    text.encode()


def test_results_of_huge_lines_and_folders_are_cut(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("x" * 100_000)
    for number in range(300):
        (tmp_path / f"name {number}").write_text("")
    assert len(run("read_lines", {"path": "one"}, [tmp_path])) <= MOST_CHARACTERS + 100
    assert "(101 more entries)" in run("list_files", {"folder": tmp_path.name}, [tmp_path])


def test_a_long_search_ends_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_only, "_SECONDS", -1.0)
    assert run("search", {"words": "tea"}, [folder]).endswith("(not all files were searched)")


def test_nothing_reaches_the_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> socket.socket:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refused)
    for path in ("http://localhost/", "//server/share/file", "ftp://a/b"):
        with pytest.raises(ToolError):
            run("read_lines", {"path": path}, [folder])
    assert run("search", {"words": "tea"}, [folder])


def test_no_folder_no_tool_and_no_words_are_errors(folder: Path) -> None:
    for name, arguments, roots in (
        ("search", {"words": "tea"}, []),
        ("delete", {}, [folder]),
        ("search", {"words": "..."}, [folder]),
        ("search", {"words": ["tea"]}, [folder]),
        ("read_lines", {"path": "binary"}, [folder]),
        ("read_lines", {"path": "plan.md", "first": "one"}, [folder]),
    ):
        with pytest.raises(ToolError):
            run(name, arguments, roots)


def test_schemas_of_our_tools_are_objects() -> None:
    for tool in TOOLS:
        assert (as_object(tool.parameters) or {})["type"] == "object"


def test_of_a_pattern_only_its_files_are_attached(folder: Path) -> None:
    roots = [folder / "**" / "*.txt"]
    assert run("list_files", {}, roots) == "notes/"
    assert run("list_files", {"folder": "notes"}, roots) == "deep/"
    assert "Green" in run("read_lines", {"path": "notes/deep/tea.txt"}, roots)
    assert run("search", {"words": "line"}, roots) == "nothing was found"
    assert "tea.txt:1" in run("search", {"words": "green"}, roots)
    for path in ("notes/plan.md", "../outside", "notes/../secret.txt", "notes/.env"):
        with pytest.raises(ToolError):
            run("read_lines", {"path": path}, roots)
        with pytest.raises(ToolError):
            run("list_files", {"folder": path}, roots)
