"""A model that cannot be had: one clear sentence, the right exit code, never a traceback."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import Specchat

pytestmark = pytest.mark.usefixtures("llamacpp")


def test_a_missing_file(specchat: Specchat) -> None:
    ended = specchat("ask", "hi", "--model", "missing.gguf")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no file missing.gguf" in ended.stderr


def test_the_nearest_files_are_named(specchat: Specchat, tmp_path: Path) -> None:
    (tmp_path / "small-q4.gguf").touch()
    ended = specchat("ask", "hi", "--model", str(tmp_path / "smal-q4.gguf"))
    assert ended.returncode == 2
    assert "Nearest: small-q4.gguf" in ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="a device of POSIX")
def test_a_device(specchat: Specchat) -> None:
    ended = specchat("ask", "hi", "--model", os.devnull)
    assert ended.returncode == 2
    assert "it is not a regular file" in ended.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"GG", "not a GGUF file"),
        (b"once upon a time", "not a GGUF file"),
        (b"GGUF\x07\0\0\0" + bytes(100), "version 7"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 16, "damaged"),
    ],
)
def test_a_file_that_holds_no_model(
    specchat: Specchat, tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(content)
    ended = specchat("ask", "hi", "--model", str(path))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert str(path) in ended.stderr
    assert told in ended.stderr


HEADER_BYTES = 1_000_000
LENGTH = 98_362_432


@pytest.mark.parametrize("kept", [30, HEADER_BYTES, LENGTH - 1])
def test_a_file_cut_short(specchat: Specchat, demo_file: Path, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "cut.gguf"
    shutil.copyfile(demo_file, path)
    assert kept < path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(kept)
    ended = specchat("ask", "hi", "--model", str(path))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert str(path) in ended.stderr
    assert "ownload or copy" in ended.stderr


@pytest.mark.parametrize("at", [16, 80])
def test_a_damaged_header(specchat: Specchat, demo_file: Path, tmp_path: Path, at: int) -> None:
    path = tmp_path / "damaged.gguf"
    with demo_file.open("rb") as whole:
        head = bytearray(whole.read(HEADER_BYTES))
    head[at : at + 8] = b"\xff" * 8
    path.write_bytes(head)
    ended = specchat("ask", "hi", "--model", str(path))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "damaged" in ended.stderr


def test_an_unknown_architecture_is_named(
    specchat: Specchat, tiny_gguf: Callable[..., Path]
) -> None:
    path = tiny_gguf("new.gguf", architecture="tachyon")
    ended = specchat("ask", "hi", "--model", str(path))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "'tachyon'" in ended.stderr


@pytest.mark.parametrize("name", ["folder", "folder.gguf"])
def test_a_folder_is_no_model(specchat: Specchat, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    ended = specchat("ask", "hi", "--model", str(folder))
    assert ended.returncode in (1, 2)
    assert str(folder) in ended.stderr


@pytest.mark.parametrize("name", ["dmo", "Demo1", "de-no"])
def test_an_unknown_name_brings_the_nearest(specchat: Specchat, name: str) -> None:
    ended = specchat("ask", "hi", "--model", name)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"no model {name}. Nearest: demo" in ended.stderr


def test_a_name_like_no_other_brings_the_known_ones(specchat: Specchat, home: Path) -> None:
    folder = home / "data" / "models"
    folder.mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(b"GGUF")
    ended = specchat("ask", "hi", "--model", "xyzzyplugh")
    assert ended.returncode == 2
    assert "`specchat models list` lists all" in ended.stderr


@pytest.mark.parametrize("name", ["org/name", "org/name:q4_0", "llama3.1-8b"])
def test_a_model_that_is_not_here_is_not_fetched_offline(specchat: Specchat, name: str) -> None:
    ended = specchat("ask", "hi", "--model", name, "--offline")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert f"{name} is not on this machine" in ended.stderr
    assert "offline" in ended.stderr


def test_a_context_above_what_the_model_was_trained_for(specchat: Specchat) -> None:
    ended = specchat("ask", "hi", "--ctx", "8193")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "8,193" in ended.stderr
    assert "at most 8,192" in ended.stderr


@pytest.mark.slow
def test_the_context_that_memory_allows_is_offered(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.llamacpp.model.available_memory", lambda: 100_000_000)
    refused = specchat("ask", "hi", "--ctx", "8192")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "0.1 GB are free" in refused.stderr
    offered = refused.stderr.partition("Use --ctx ")[2].split()[0]
    assert specchat("ask", "hi", "--ctx", offered, "--max-tokens", "1").returncode == 0


def test_no_context_of_zero_tokens_is_offered(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.llamacpp.model.available_memory", lambda: 1_000)
    refused = specchat("ask", "hi", "--ctx", "512")
    assert refused.returncode == 1
    assert "--ctx 0" not in refused.stderr


def test_without_ctx_the_context_shrinks_to_the_free_memory(
    ask_json: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.llamacpp.model.available_memory", lambda: 70_000_000)
    assert ask_json("hi", "--max-tokens", "1")["model"]["context"] == 1024
