"""Damaged, foreign and newer files, and a disk that takes nothing: the rest goes on."""

import builtins
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from decoding.drafters.retrieval.corpus import Corpus, forget
from tests.fixtures.corpora import VOCABULARY, corpus_of, document, finished

TEXT = [1, 2, 3, 4, 5, 6]
Damage = Callable[[bytes], bytes]


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def flipped(place: int) -> Damage:
    return lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


HEAD_DAMAGE: dict[str, Damage] = {
    "empty": lambda data: b"",
    "half a head": lambda data: data[:20],
    "half written": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"\0\0\0\0",
    "other bytes": lambda data: bytes(len(data)),
    "a bit in the counts": flipped(50),
    "a bit in the table": flipped(80),
}


@pytest.mark.parametrize("name", HEAD_DAMAGE)
def test_a_damaged_file_is_set_aside_and_said_once(tmp_path: Path, name: str) -> None:
    corpus_of(tmp_path, [document(1, TEXT)]).close()
    path = only_file(tmp_path)
    path.write_bytes(HEAD_DAMAGE[name](path.read_bytes()))
    corpus_of(tmp_path, [document(2, TEXT)]).close()
    corpus = Corpus(tmp_path, VOCABULARY)
    assert corpus.find([1, 2, 3], 3, 2)[0] == 3
    assert not path.exists()
    assert set(corpus.notes()) == {2}
    corpus = Corpus(tmp_path, VOCABULARY)
    assert corpus.faults == []


def test_damaged_text_is_found_by_the_check(tmp_path: Path) -> None:
    corpus_of(tmp_path, [document(1, TEXT)]).close()
    path = only_file(tmp_path)
    path.write_bytes(flipped(-20)(path.read_bytes()))
    corpus = Corpus(tmp_path, VOCABULARY)
    finished(corpus.check())
    assert len(corpus.faults) == 1
    assert corpus.faults[0].endswith("is damaged: it is left out until the app makes it anew")
    assert not path.exists()
    assert corpus.notes() == {}


def test_places_outside_the_text_drop_the_file_and_no_more(tmp_path: Path) -> None:
    corpus_of(tmp_path, [document(1, TEXT)]).close()
    path = only_file(tmp_path)
    data = path.read_bytes()
    samples = 64  # of these few places there is one
    path.write_bytes(data[: -samples - 4 * len(TEXT)] + b"\xf0" * 4 * len(TEXT) + data[-samples:])
    corpus = Corpus(tmp_path, VOCABULARY)
    assert corpus.find([1, 2, 3], 3, 2) == (0, [])


def test_another_vocabulary_is_set_aside(tmp_path: Path) -> None:
    corpus_of(tmp_path, [document(1, TEXT)]).close()
    corpus = Corpus(tmp_path, bytes(32))
    assert corpus.find([1, 2, 3], 3, 2) == (0, [])
    assert "another vocabulary" in "".join(corpus.faults)


def test_what_a_newer_version_wrote_is_left_to_it_but_for_forgetting(tmp_path: Path) -> None:
    folder = tmp_path / "vocabulary"
    corpus_of(folder, [document(1, TEXT)]).close()
    path = only_file(folder)
    newer = path.read_bytes().replace(b"scretri1", b"scretri2", 1)
    path.write_bytes(newer)
    corpus = Corpus(folder, VOCABULARY)
    assert corpus.find([1, 2, 3], 3, 2) == (0, [])
    assert len(corpus.faults) == 1
    corpus.refresh()
    assert len(corpus.faults) == 1
    assert path.read_bytes() == newer
    forget(tmp_path, 7)
    assert not path.exists()


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = corpus_of(tmp_path, [document(1, TEXT)])
    opened = builtins.open

    def full(path: Any, mode: str = "r", **options: Any) -> Any:
        file = opened(path, mode, **options)
        if "x" not in mode:
            return file
        file.write(b"some")
        file.close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", full)
        with pytest.raises(OSError, match="No space"):
            finished(corpus.add([document(2, TEXT[::-1])]))
    assert len(list(tmp_path.iterdir())) == 1
    assert set(corpus.notes()) == {1}


def test_a_segment_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    corpus_of(tmp_path / "folder", [document(1, TEXT)])
    assert only_file(tmp_path / "folder").stat().st_mode & 0o077 == 0
    assert (tmp_path / "folder").stat().st_mode & 0o077 == 0


def test_what_a_killed_program_left_half_written_is_removed(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [document(1, TEXT)])
    old, fresh = tmp_path / ".old.segment.123", tmp_path / ".fresh.segment.124"
    for path in (old, fresh):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    corpus.tidy()
    assert (old.exists(), fresh.exists()) == (False, True)
    assert set(corpus.notes()) == {1}
