"""Files of folders: as git would list them, without hidden ones, and whatever is in the way."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.documents import folders
from app.documents.folders import is_folder, is_pattern, listed


def _names(name: str | Path) -> list[str]:
    return [one.name for one in listed(str(name)).entries]


def _fill(root: Path, files: dict[str, str | bytes]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_are_listed_in_order_without_hidden_empty_and_binary_ones(here: Path) -> None:
    _fill(here, {"notes/b.md": "b", "notes/a/z.md": "z", "notes/.git/config": "x", ".x": "x"})
    _fill(here, {"notes/picture.png": b"\x89PNG\0\0", "notes/none.md": "", "notes/Ä.txt": "ä"})
    _fill(here, {"notes/paper.pdf": b"%PDF-1.7\n\0", "notes/wide.txt": "hi".encode("utf-16")})
    names = ["notes/a/z.md", "notes/b.md", "notes/paper.pdf", "notes/wide.txt", "notes/Ä.txt"]
    assert _names("notes/") == _names("notes") == names
    assert _names(here / "notes") == names  # by the folder's own name
    assert _names("./notes") == names
    assert _names(".") == names
    listing = listed("notes")
    assert all(one.size == (here / one.name).stat().st_size for one in listing.entries)
    assert listing.faults == ()


def test_patterns(here: Path) -> None:
    _fill(here, {"src/a.py": "a", "src/b.txt": "b", "src/in/c.py": "c", "src/in/deep/d.py": "d"})
    assert _names("src/**/*.py") == ["src/a.py", "src/in/c.py", "src/in/deep/d.py"]
    assert _names("src/*.py") == ["src/a.py"]
    assert _names("src/in/?.py") == ["src/in/c.py"]
    assert _names("*.py") == []
    assert _names(f"{here}/src/*.txt") == ["src/b.txt"]
    assert is_pattern("src/*.py")
    assert not is_pattern("nowhere/*.py")
    assert is_folder("src")
    assert not is_folder("src/a.py")
    assert not is_folder("...")


def test_an_ignored_folder_is_read_if_it_is_named(here: Path) -> None:
    _fill(here, {".git/HEAD": "x", ".gitignore": "build/\n*.log\n", "build/out.md": "o"})
    _fill(here, {"src/a.md": "a", "src/a.log": "l", "src/.gitignore": "!a.log\n"})
    assert _names(".") == ["src/a.log", "src/a.md"]
    assert _names("build") == ["build/out.md"]


@pytest.mark.skipif(os.name == "nt", reason="links need rights")
def test_links_are_not_followed_and_what_cannot_be_read_is_told(here: Path) -> None:
    _fill(here, {"notes/a.md": "a", "notes/shut/b.md": "b", "secret.md": "s"})
    (here / "notes" / "loop").symlink_to(here / "notes")
    (here / "notes" / "out.md").symlink_to(here / "secret.md")
    os.mkfifo(here / "notes" / "pipe")
    assert _names("notes") == ["notes/a.md", "notes/shut/b.md"]
    (here / "notes" / "shut").chmod(0)
    try:
        listing = listed("notes")
        if os.geteuid():  # root reads everything
            assert [one.name for one in listing.entries] == ["notes/a.md"]
            assert "Permission denied" in listing.faults[0]
    finally:
        (here / "notes" / "shut").chmod(0o700)
    assert listed("gone").entries == ()
    assert "No such file" in listed("gone").faults[0]


def test_bounds_are_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(here, {f"notes/{number}.md": "x" for number in range(5)})
    monkeypatch.setattr(folders, "MOST_FILES", 3)
    assert listed("notes").faults == ("notes has more than 3 files",)
    assert len(listed("notes").entries) == 3
    asked = iter([True, False])
    assert len(listed("notes", lambda: next(asked, False)).entries) == 1


_GIT = shutil.which("git")
_PATTERNS = """*.md !a.md a b/ /a /b/c **/c a/** b/* !b/c.md #a ?.md [ab].md !/a/ * !*/ !c.md a/b
    **/a/**/c.md \\!a.md"""
_RULES = st.lists(st.sampled_from([*_PATTERNS.split(), "", "c.md "]), max_size=4)
_FILES = [f"{folder}{name}.md" for folder in ("", "a/", "b/", "b/c/", "a/b/") for name in "abc"]


@pytest.mark.skipif(_GIT is None, reason="git is not here")
@settings(max_examples=15)
@given(_RULES, _RULES)
def test_what_is_ignored_is_what_git_ignores(
    tmp_path_factory: pytest.TempPathFactory, outer: list[str], inner: list[str]
) -> None:
    _check_against_git(tmp_path_factory.mktemp("git"), outer, inner)


@pytest.mark.nightly
@pytest.mark.skipif(_GIT is None, reason="git is not here")
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_RULES, _RULES)
def test_what_is_ignored_is_what_git_ignores_often(
    tmp_path_factory: pytest.TempPathFactory, outer: list[str], inner: list[str]
) -> None:
    _check_against_git(tmp_path_factory.mktemp("git"), outer, inner)


def _check_against_git(root: Path, outer: list[str], inner: list[str]) -> None:
    _fill(root, dict.fromkeys(_FILES, "x"))
    _fill(root, {".gitignore": "\n".join(outer), "b/.gitignore": "\n".join(inner)})
    bare = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "init", "-q"], cwd=root, check=True, env=bare)
    others = ["git", "ls-files", "-o", "--exclude-standard", "-z"]
    told = subprocess.run(others, cwd=root, check=True, env=bare, capture_output=True).stdout
    wanted = sorted(name for name in told.decode().split("\0") if name.endswith(".md"))
    found = sorted(name.removeprefix(f"{root.name}/") for name in _names(root))
    assert found == wanted, (outer, inner, sys.version)
    shutil.rmtree(root)
