"""Digests of files: right, remembered, and computed again when a file changes."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from models.metadata import identity as module
from models.metadata.identity import content_hash, known_hash


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"one" * 1000)
    return path


def test_a_known_digest_is_found_without_reading(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "memory.json"
    assert known_hash(file, memory) is None
    first = content_hash(file, memory)
    assert first == hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(module.hashlib, "file_digest", lambda *_: pytest.fail("read again"))
    assert known_hash(file, memory) == content_hash(file, memory) == first
    os.utime(file, (1, 1))
    assert known_hash(file, memory) is None


def test_a_changed_file_is_read_again(file: Path, tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    first = content_hash(file, memory)
    file.write_bytes(b"two" * 1000)
    os.utime(file, (1, 1))
    assert content_hash(file, memory) == hashlib.sha256(b"two" * 1000).hexdigest() != first


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"other": "x"}', b"null"])
def test_a_damaged_memory_is_done_without(file: Path, tmp_path: Path, content: bytes) -> None:
    memory = tmp_path / "memory.json"
    memory.write_bytes(content)
    assert content_hash(file, memory) == hashlib.sha256(file.read_bytes()).hexdigest()
    assert isinstance(json.loads(memory.read_text()), dict)


def test_a_memory_that_cannot_be_written_is_done_without(file: Path, tmp_path: Path) -> None:
    memory = tmp_path / "no" / "such" / "folder" / "memory.json"
    assert content_hash(file, memory) == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        content_hash(tmp_path / "nothing", tmp_path / "memory.json")


def test_nothing_but_the_memory_is_left_behind(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    content_hash(file, folder / "hashes.json")
    assert [path.name for path in folder.iterdir()] == ["hashes.json"]
