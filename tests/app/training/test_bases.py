"""What is distilled: named models of the same vocabulary, and copies of the model itself."""

import shutil
from pathlib import Path

import pytest

from app.training.bases import base_of, is_own_copy
from backends.base import DraftUnavailableError, UsageError
from backends.files.gguf_header import read_header
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.models import write_dense


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_dense(tmp_path / "target.gguf", layers=10)


def test_a_model_is_distilled_into_its_first_and_last_layers(target: Path, tmp_path: Path) -> None:
    pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")
    made = base_of("", target, tmp_path, tmp_path)
    assert read_header(made).integer("block_count") == 8
    stamp = made.stat().st_mtime_ns
    assert base_of("", target, tmp_path, tmp_path).stat().st_mtime_ns == stamp


def test_or_as_a_recipe_says(target: Path, tmp_path: Path) -> None:
    pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")
    made = base_of("self:skip=1-6", target, tmp_path, tmp_path)
    assert read_header(made).integer("block_count") == 4
    assert is_own_copy("self:skip=1-6")
    with pytest.raises(UsageError, match="cannot be skipped"):
        base_of("self:skip=40", target, tmp_path, tmp_path / "none")


def test_a_small_model_is_distilled_as_it_is(target: Path, tmp_path: Path) -> None:
    small = write_dense(tmp_path / "small.gguf", layers=2)
    assert base_of(str(small), target, tmp_path, tmp_path) == small
    assert not is_own_copy(str(small))


def test_what_cannot_be_distilled_is_refused(target: Path, tiny: Tiny, tmp_path: Path) -> None:
    few = write_dense(tmp_path / "few.gguf", layers=4)
    with pytest.raises(UsageError, match="it has 4 layers"):
        base_of("", few, tmp_path, tmp_path)
    gemma = Path(shutil.copy(tiny("gemma4"), tmp_path))
    with pytest.raises(DraftUnavailableError, match="those that can: llama") as refused:
        base_of("self:skip=1", gemma, tmp_path, tmp_path)
    assert "--from" in str(refused.value.remedy)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(DraftUnavailableError, match="folder for MLX"):
        base_of("", folder, tmp_path, tmp_path)


def test_another_vocabulary_is_refused(target: Path, tmp_path: Path) -> None:
    from models.stores.available_models import demo_path

    if (bundled := demo_path()) is None:
        pytest.skip("the bundled model is not installed")
    with pytest.raises(DraftUnavailableError, match="its vocabulary is another one"):
        base_of(str(bundled), target, tmp_path, tmp_path)
