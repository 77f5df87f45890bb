"""What a user may call a model."""

import struct
from pathlib import Path

import pytest

from backends.base import ModelError, UsageError
from models import installed
from models.installed import best_installed, known_names
from models.reference import Reference, at_hand, resolve

WHOLE = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
"""The smallest file that is no damaged one: a header of nothing."""


def file_of(name: str, folder: Path) -> Reference:
    return at_hand(resolve(name, folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    for name, size in {"Llama-3.2-1B": 100, "tiny": 10, "qwen2.5-7b": 1000}.items():
        (folder / f"{name}.gguf").write_bytes(WHOLE.ljust(size, b"\0"))
    (folder / "notes.txt").touch()
    return folder


def test_known_names_are_the_bundled_model_and_the_files_of_the_folder(folder: Path) -> None:
    assert list(known_names(folder)) == ["demo", "Llama-3.2-1B", "qwen2.5-7b", "tiny"]


@pytest.mark.parametrize("name", ["Llama-3.2-1B", "llama-3.2-1b", "llama3.2 1b", "LLAMA_32_1B"])
def test_case_and_punctuation_do_not_matter(folder: Path, name: str) -> None:
    found = file_of(name, folder)
    assert (found.name, found.path) == ("Llama-3.2-1B", folder / "Llama-3.2-1B.gguf")


@pytest.mark.parametrize("name", ["demo", "Demo", "DEMO"])
def test_the_bundled_model_needs_no_folder(tmp_path: Path, demo_file: Path, name: str) -> None:
    assert file_of(name, tmp_path / "nowhere").path == demo_file


def test_a_path_is_taken_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert file_of("tiny.gguf", folder).path == Path("tiny.gguf")
    assert file_of("gone.gguf", folder).path == Path("gone.gguf")
    assert file_of("notes.txt", folder).path == Path("notes.txt")


def test_a_tilde_is_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    assert file_of("~/tiny.gguf", folder).path == folder / "tiny.gguf"


@pytest.mark.parametrize(
    ("name", "near"), [("lama-3.2-1bb", "Llama-3.2-1B"), ("tny", "tiny"), ("dmo", "demo")]
)
def test_an_unknown_name_brings_the_nearest_first(folder: Path, name: str, near: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve(name, folder)
    assert refused.value.why.startswith(f"nearest: {near}")


@pytest.mark.parametrize("name", ["", "-", "///", "."])
def test_a_name_without_letters_is_unknown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        resolve(name, folder)


def test_a_folder_of_several_models_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="is no single model"):
        resolve(str(folder), folder)


def test_the_bundled_model_may_not_be_installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "demo_path", lambda: None)
    assert "demo" not in known_names(folder)
    with pytest.raises(ModelError, match="not installed") as refused:
        resolve("demo", folder)
    assert "pip install" in refused.value.remedy


@pytest.mark.parametrize(
    ("room", "best"), [(5000, "qwen2.5-7b"), (1000, "Llama-3.2-1B"), (35, "tiny"), (5, None)]
)
def test_the_best_installed_is_the_largest_that_fits(
    folder: Path, room: int, best: str | None
) -> None:
    assert best_installed(folder, room) == best


def test_nothing_is_installed_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert best_installed(tmp_path / "nowhere", 1 << 40) is None


def test_a_dangling_link_in_the_folder_is_passed_over(folder: Path) -> None:
    (folder / "gone.gguf").symlink_to(folder / "nothing")
    assert best_installed(folder, 5000) == "qwen2.5-7b"
