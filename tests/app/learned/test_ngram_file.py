"""The file of n-gram statistics: whole or not used, and never larger than it may be."""

import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.learned.ngram_memory import MAGIC, MOST_BYTES, NgramFile, UnusableFileError
from decoding.drafters.ngram import NgramStatistics, Passage

N_VOCAB = 500
SAID = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] * 4


@pytest.fixture
def file(tmp_path: Path) -> NgramFile:
    return NgramFile(tmp_path / "a.ngrams", "a" * 24, N_VOCAB)


@pytest.fixture
def written(file: NgramFile) -> NgramFile:
    file.write(taught(SAID))
    return file


def taught(tokens: list[int]) -> NgramStatistics:
    statistics = NgramStatistics()
    statistics.learn(Passage(tokens, 0))
    return statistics


def rewritten(file: NgramFile, body: bytes) -> None:
    """The file with another body, and a sum that fits."""
    file.path.write_bytes(MAGIC + struct.pack("<I", zlib.crc32(body)) + body)


def test_where_there_is_no_file_there_is_nothing(file: NgramFile) -> None:
    assert file.read() is None


def test_what_is_written_is_read_back(written: NgramFile) -> None:
    found, expected = written.read(), taught(SAID)
    assert found is not None
    assert found.guess([3, 4, 5]) == expected.guess([3, 4, 5]) is not None
    assert found.table.learned == len(SAID)
    assert np.array_equal(found.counts, expected.counts)


def test_it_has_16_megabytes_at_most_and_little_where_little_was_learned(
    written: NgramFile,
) -> None:
    assert MOST_BYTES <= 16_000_000
    assert written.path.stat().st_size < 10_000


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_only_its_owner_can_read_it(written: NgramFile) -> None:
    assert written.path.stat().st_mode & 0o777 == 0o600


@settings(max_examples=60)
@given(data=st.data())
def test_any_changed_byte_is_noticed(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.ngrams"
    file = NgramFile(path, "a" * 24, N_VOCAB)
    file.write(taught(SAID))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises(UnusableFileError):
        file.read()


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 11, 12, 40, 3000, -1])
def test_a_file_cut_short_is_damaged(written: NgramFile, kept: int) -> None:
    content = written.path.read_bytes()
    written.path.write_bytes(content[:kept])
    with pytest.raises(UnusableFileError, match="damaged"):
        written.read()


def test_a_file_of_another_version_is_told(written: NgramFile) -> None:
    content = written.path.read_bytes()
    written.path.write_bytes(b"scngram2" + content[8:])
    with pytest.raises(UnusableFileError, match="another version"):
        written.read()


@pytest.mark.parametrize("other", [{"fingerprint": "b" * 24}, {"n_vocab": N_VOCAB + 1}])
def test_a_file_of_another_model_is_told(written: NgramFile, other: dict) -> None:
    with pytest.raises(UnusableFileError, match="another model"):
        replace(written, **other).read()


def test_a_token_that_the_model_lacks_is_damage(written: NgramFile) -> None:
    body = bytearray(written.path.read_bytes()[12:])
    body[-4:] = struct.pack("<I", N_VOCAB << 6 | 1 << 3)
    rewritten(written, bytes(body))
    with pytest.raises(UnusableFileError, match="damaged"):
        written.read()


def test_counts_that_cannot_be_are_damage(written: NgramFile) -> None:
    body = bytearray(written.path.read_bytes()[12:])
    body[40:48] = struct.pack("<d", float("nan"))
    rewritten(written, bytes(body))
    with pytest.raises(UnusableFileError, match="damaged"):
        written.read()


def test_a_file_that_is_too_large_is_not_even_read(written: NgramFile) -> None:
    with written.path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(UnusableFileError, match="damaged"):
        written.read()


def test_a_write_that_fails_leaves_the_file_as_it_was(
    written: NgramFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = written.path.read_bytes()

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        written.write(taught([5, 6] * 9))
    assert written.path.read_bytes() == before
    assert [one.name for one in written.path.parent.glob("*ngrams*")] == ["a.ngrams"]
