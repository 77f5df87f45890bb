"""Which model answers when none is named."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from app.engine.session_opening import open_session
from app.loading.select import choose_model, remember_model
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import ModelError
from models.reference import Reference, at_hand, resolve


@pytest.fixture
def paths(home: Path) -> Paths:
    paths = Paths.of_this_user()
    assert paths.data == home / "data"
    paths.models.mkdir(parents=True)
    return paths


def test_the_bundled_one_where_there_is_no_other(paths: Paths) -> None:
    assert choose_model(None, paths).name == "demo"


def test_the_best_installed_before_the_bundled_one(paths: Paths) -> None:
    (paths.models / "mine.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    (paths.models / "damaged.gguf").write_bytes(bytes(5000))
    assert choose_model(None, paths).name == "mine"


def test_the_last_used_before_the_best_installed(paths: Paths) -> None:
    for name in ("small", "large"):
        (paths.models / f"{name}.gguf").write_bytes(b"GGUF" * len(name))
    remember_model(at_hand(resolve("small", paths.models)), paths)
    assert choose_model(None, paths).name == "small"


def test_the_named_one_before_all(paths: Paths) -> None:
    (paths.models / "mine.gguf").write_bytes(b"GGUF")
    assert choose_model("demo", paths).name == "demo"


def test_a_file_elsewhere_is_remembered_from_any_folder(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    remember_model(Reference("far.gguf", Path("far.gguf")), paths)
    monkeypatch.chdir("/")
    assert at_hand(choose_model(None, paths)).path == (tmp_path / "far.gguf").resolve()


def test_a_last_used_model_that_is_gone_is_passed_over(paths: Paths, tmp_path: Path) -> None:
    remember_model(Reference("gone.gguf", tmp_path / "gone.gguf"), paths)
    assert choose_model(None, paths).name == "demo"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"\n\n", b"no such model"])
def test_a_damaged_memory_is_passed_over(paths: Paths, content: bytes) -> None:
    paths.last_model.write_bytes(content)
    assert choose_model(None, paths).name == "demo"


def test_a_dangling_link_among_the_models_is_passed_over(paths: Paths) -> None:
    (paths.models / "gone.gguf").symlink_to(paths.models / "nothing")
    assert choose_model(None, paths).name == "demo"


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_only_a_model_that_was_named_is_remembered(
    ask_json: Callable[..., dict[str, Any]], paths: Paths
) -> None:
    ask_json("hi", "--max-tokens", "1")
    assert not paths.last_model.exists()
    ask_json("hi", "--max-tokens", "1", "--model", "Demo")
    assert paths.last_model.read_text(encoding="utf-8") == "demo"


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_a_model_that_did_not_answer_is_not_remembered(
    specchat: Callable[..., CompletedProcess[str]], paths: Paths, crashing: Path
) -> None:
    ended = specchat("ask", "hi", "--model", str(crashing))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "crashing.gguf stops the engine" in ended.stderr
    assert not paths.last_model.exists()
    session = open_session(SessionOptions("demo", "off"), paths, lambda text: None)
    session.close()
    assert not paths.last_model.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_where_the_last_model_cannot_be_run_the_next_one_answers_and_says_so(
    specchat: Callable[..., CompletedProcess[str]], paths: Paths, crashing: Path
) -> None:
    shutil.copyfile(crashing, paths.models / "best.gguf")
    remember_model(Reference(crashing.name, crashing), paths)
    ended = specchat("ask", "hi", "--max-tokens", "1", "--draft", "off")
    assert ended.returncode == 0, ended.stderr
    for name in ("crashing.gguf", "best"):
        assert f"note: {name} is passed over: " in ended.stderr
    assert paths.last_model.read_text(encoding="utf-8") == str(crashing)


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_a_model_that_was_named_is_never_replaced(
    paths: Paths, crashing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="stops the engine"):
        open_session(SessionOptions(str(crashing), "off"), paths, lambda text: None)
    monkeypatch.setattr("models.stores.available_models.demo_path", lambda: None)
    remember_model(Reference(crashing.name, crashing), paths)
    with pytest.raises(ModelError, match="stops the engine"):  # not that there is no other
        open_session(SessionOptions(None, "off"), paths, lambda text: None)
