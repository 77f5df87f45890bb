"""Binary files: bytes of earlier releases stay readable, and damage is found."""

import struct
import sys
import zlib
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest

from app.learned.ngram_memory import NgramFile
from app.prompt_cache.saved_states import read_head as read_state_head
from app.prompt_cache.saved_states import read_state, write_state
from backends.base.safe_files import (
    DamagedFileError,
    OtherVersionError,
    TabledFormat,
    crc32,
    seal,
    unseal,
)
from decoding.drafters.ngram import NgramStatistics, Passage
from decoding.drafters.retrieval.segment_file import Document, Note, read_head, write_segment

KEY = bytes(range(32))
STATE = bytes.fromhex(
    "7363737461746531000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f08bb5e5d6eaa"
    "c1049ede0893d30ed022b1a4d9b5b48db414871f51c9cb35283d0300000000000000050000000000000001000000"
    "0200000070110100195f8bf5cbdf524a8c74b48ca8786b057efb51be38ea9177ae156ce0ec86e1470001020304"
)
NGRAMS = zlib.decompress(
    b64decode(
        "eNorTs5LL0rMNUx/9vxhGg7AxcDAwAnE7AzUBB/sGUbBiATTnLtznv/+Pxr/o2AUjIJRMCLBaP0/Wv+PglEwCkbB"
        "KBhK4IA2A8MMEyaGNw+YGaboszN0XGNn2PKLg2FOOSeDyRQuhifdvAwunAwMHUC1Wp8YGC4Aaf5kBoYTQDrrJES8"
        "4z1E3MeAgcEDSAvuZ2AIANL6nyD0im4GhglAGgCEGjQG"
    )
)
SEGMENT = zlib.decompress(
    b64decode(
        "eNorTi5KLSnKNGRhZmJkYGRiZmFlY+fg5OLm4eXjFxAUEhYRFROXkJSSlpGVk2diYGCQAGJWIFbV6HZjZ4ACNH0Q"
        "wR/2EJrFgRFIMgMxBwM+wOEAoQUcQOaD7Kpj2er7Hwig2kFCjMj8/1QAMIPZQIZD/UapPQCul4ow"
    )
)
"""Written on a little-endian machine."""


def statistics() -> NgramStatistics:
    learned = NgramStatistics()
    learned.learn(Passage([1, 2, 3, 1, 2, 3, 1], 0))
    return learned


def documents() -> list[Document]:
    return [
        Document(Note(7, bytes(range(16)), 1.5, 2.5), np.array([1, 2, 3], np.uint32)),
        Document(Note(8, bytes(16), 3.0, 4.0), np.array([2, 3], np.uint32)),
    ]


def test_a_saved_state_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    path.write_bytes(STATE)
    saved = read_state_head(path)
    assert saved is not None
    assert (saved.key, saved.tokens) == (KEY, (1, 2, 70_000))
    state = read_state(saved)
    assert state is not None
    assert state.tolist() == [0, 1, 2, 3, 4]
    assert write_state(path, KEY, saved.tokens, state, lambda: True)
    assert path.read_bytes() == STATE


def test_ngrams_keep_their_bytes(tmp_path: Path) -> None:
    file = NgramFile(tmp_path / "a.ngrams", "f" * 24, 10)
    file.path.write_bytes(NGRAMS)
    read = file.read()
    assert read is not None
    assert np.array_equal(read.counts, statistics().counts)
    assert np.array_equal(read.table.contents.entries, statistics().table.contents.entries)
    file.write(read)
    assert file.path.read_bytes() == NGRAMS


@pytest.mark.skipif(sys.byteorder != "little", reason="the file has the machine's byte order")
def test_a_segment_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.segment"
    path.write_bytes(SEGMENT)
    head = read_head(path, KEY)
    assert head.table["number"].tolist() == [7, 8]
    assert head.size == len(SEGMENT)
    list(write_segment(path, KEY, documents()))
    assert path.read_bytes() == SEGMENT


def test_a_changed_byte_of_a_sealed_file_is_found() -> None:
    content = seal(b"magic__1", b"body")
    assert unseal(b"magic__1", content) == b"body"
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        with pytest.raises((DamagedFileError, OtherVersionError)):
            unseal(b"magic__1", bytes(damaged))
    for length in range(len(content)):
        with pytest.raises(DamagedFileError):
            unseal(b"magic__1", content[:length])


def test_a_changed_byte_before_the_data_of_a_tabled_file_is_found(tmp_path: Path) -> None:
    file_format = TabledFormat(b"magic__1", struct.Struct("<II"), crc32)
    head = file_format.head((2, 3), b"ab")
    path = tmp_path / "file"

    def read(content: bytes) -> object:
        path.write_bytes(content)
        with path.open("rb") as file:
            return file_format.read_head(file, lambda table, data: (table, data))

    assert read(head + b"xyz") == ((2, 3), b"ab")
    for place in range(len(head)):
        damaged = bytearray(head + b"xyz")
        damaged[place] ^= 1
        with pytest.raises((DamagedFileError, OtherVersionError)):
            read(bytes(damaged))
    with pytest.raises(DamagedFileError):
        read(head + b"xyz!")


def test_another_version_is_told_from_damage() -> None:
    with pytest.raises(OtherVersionError):
        unseal(b"magic__1", seal(b"magic__2", b""))
    with pytest.raises(DamagedFileError):
        unseal(b"magic__1", seal(b"mystic_1", b""))
