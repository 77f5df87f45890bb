"""Files are replaced whole or not at all."""

from pathlib import Path

import pytest

from backends.base.atomic_file import replacing, write_whole


def test_a_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"ne", None])  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_text_and_bytes_are_written_as_given(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, "a\n\ud800é")
    assert path.read_bytes() == "a\n?é".encode()
    write_whole(path, b"\r\n")
    assert path.read_bytes() == b"\r\n"
