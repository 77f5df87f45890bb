"""A model's file that changes while the engine reads it."""

import os
from pathlib import Path

import pytest

from app.loading.loaded_files import LoadedFiles
from backends.base import ModelError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "mine.gguf"
    path.write_bytes(bytes(2_500_000))
    return path


def test_a_file_that_stays_as_it_is_can_be_used(model: Path) -> None:
    files = LoadedFiles.of(model)
    files.check_whole()
    files.check_present()


def test_a_file_that_was_cut_is_told_before_it_is_read(model: Path) -> None:
    files = LoadedFiles.of(model)
    os.truncate(model, 1_100_000)
    with pytest.raises(ModelError, match=r"mine\.gguf cannot be used any more") as error:
        files.check_whole()
    assert "1.1 MB of 2.5 MB" in str(error.value)


def test_a_file_that_was_removed_stays_usable_but_cannot_be_loaded_again(model: Path) -> None:
    files = LoadedFiles.of(model)
    model.unlink()
    files.check_whole()
    with pytest.raises(ModelError, match="removed while in use"):
        files.check_present()


def test_a_file_that_was_replaced_by_a_smaller_one_stays_usable(model: Path) -> None:
    files = LoadedFiles.of(model)
    other = model.with_name("other.gguf")
    other.write_bytes(bytes(1000))
    other.replace(model)
    files.check_whole()
    files.check_present()


def test_a_model_without_readable_files_has_none_to_check(tmp_path: Path) -> None:
    files = LoadedFiles.of(tmp_path / "gone.gguf")
    files.check_present()
    assert not files.are_those_of(tmp_path / "gone.gguf")


def test_a_file_that_was_replaced_is_another_model(tmp_path: Path) -> None:
    file, new = tmp_path / "model.gguf", tmp_path / "new"
    for one in (file, new):
        one.write_bytes(b"GGUF")
    files = LoadedFiles.of(file)
    assert files.are_those_of(file)
    assert not files.are_those_of(new)
    new.replace(file)
    assert not files.are_those_of(file)
