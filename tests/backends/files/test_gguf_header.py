"""The GGUF reader on whole, cut, crafted and randomly damaged files: a header or a ModelError."""

import itertools
import math
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import ModelError
from backends.files.gguf_header import GgufHeader, Tensor, parts, read_header
from tests.fixtures.little_memory import taking_less_than

UINT32, FLOAT32, STRING, ARRAY, UINT64, FLOAT64 = 4, 6, 8, 9, 10, 12
HUGE = [1 << 20, (1 << 20) + 1, 1 << 24, 1 << 31, 1 << 32, 1 << 62, (1 << 64) - 1]

common = settings(max_examples=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


@pytest.fixture(scope="module")
def whole(folder: Path) -> bytes:
    """A small file of one of each kind of value."""
    path = folder / "whole.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny é")
    writer.add_block_count(2)
    writer.add_uint64("big", 1 << 40)
    writer.add_int8("negative", -3)
    writer.add_float32("half", 0.5)
    writer.add_float64("third", 1 / 3)
    writer.add_bool("yes", True)
    writer.add_array("words", ["a", "", "cd"])
    writer.add_array("numbers", [1, 2, 3, 4])
    writer.add_tensor("first", np.zeros((4, 8), dtype=np.float32))
    writer.add_tensor("last", np.ones(40, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


NUMBERS = itertools.count()


def read(folder: Path, data: bytes) -> GgufHeader:
    """Through a file of its own: headers are kept until their file changes."""
    path = folder / f"{next(NUMBERS)}.gguf"
    path.write_bytes(data)
    try:
        return read_header(path)
    finally:
        path.unlink()


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, values: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + values


def tensor(name: str, shape: tuple[int, ...], offset: int) -> bytes:
    extents = struct.pack(f"<{len(shape)}Q", *shape)
    return text(name) + struct.pack("<I", len(shape)) + extents + struct.pack("<IQ", 0, offset)


def crafted(*entries: bytes, tensors: Sequence[bytes]) -> bytes:
    counts = struct.pack("<IQQ", 3, len(tensors), len(entries))
    return b"GGUF" + counts + b"".join(entries) + b"".join(tensors)


def with_a_tensor(*entries: bytes) -> bytes:
    return crafted(*entries, tensors=[tensor("t", (4,), 0)]) + bytes(64)


def test_a_whole_file_is_read(folder: Path, whole: bytes) -> None:
    header = read(folder, whole)
    assert header.metadata == {
        "general.architecture": "llama",
        "general.name": "tiny é",
        "llama.block_count": 2,
        "big": 1 << 40,
        "negative": -3,
        "half": 0.5,
        "third": 1 / 3,
        "yes": True,
    }
    assert header.array_lengths == {"words": 3, "numbers": 4}
    start = len(whole) - 224
    assert header.tensors == (
        Tensor("first", (8, 4), 128, 0, start),
        Tensor("last", (40,), 96, 1, start + 128),
    )
    assert [one.parameters for one in header.tensors] == [32, 40]


def test_figures_of_the_architecture_have_a_default(folder: Path, whole: bytes) -> None:
    header = read(folder, whole)
    assert header.architecture == "llama"
    assert (header.integer("block_count"), header.integer("none"), header.integer("none", 7)) == (
        2,
        0,
        7,
    )


def test_a_file_without_metadata_is_read(folder: Path) -> None:
    header = read(folder, with_a_tensor())
    assert (header.metadata, header.array_lengths, header.architecture) == ({}, {}, "")


def test_a_file_without_tensors_such_as_a_first_part_is_read(folder: Path) -> None:
    header = read(folder, crafted(entry("k", UINT32, struct.pack("<I", 5)), tensors=[]))
    assert (header.metadata, header.tensors) == ({"k": 5}, ())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no file .*absent\.gguf"):
        read_header(tmp_path / "absent.gguf")


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        read_header(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelError, match="not a regular file"):
        read_header(tmp_path / "pipe.gguf")


def test_an_empty_file_is_called_empty(folder: Path) -> None:
    with pytest.raises(ModelError, match="is empty"):
        read(folder, b"")


@pytest.mark.parametrize("data", [b"G", b"GGU", b"not a model at all", b"\0" * 64, b"FUGG" * 9])
def test_another_kind_of_file_is_called_so(folder: Path, data: bytes) -> None:
    with pytest.raises(ModelError, match="not a GGUF file"):
        read(folder, data)


@pytest.mark.parametrize("version", [0, 1, 4, 3 << 24])
def test_an_unknown_version_is_an_error(folder: Path, whole: bytes, version: int) -> None:
    with pytest.raises(ModelError, match="version"):
        read(folder, whole[:4] + struct.pack("<I", version) + whole[8:])


def last_tensor_at(whole: bytes) -> int:
    return len(whole) - 96


def test_a_file_cut_before_its_last_tensor_is_an_error(folder: Path, whole: bytes) -> None:
    for size in range(last_tensor_at(whole) + 1):
        with pytest.raises(ModelError):
            read(folder, whole[:size])


@pytest.mark.parametrize("count", HUGE)
@pytest.mark.parametrize("place", ["tensors", "entries", "key", "text", "list", "texts", "lists"])
def test_a_count_too_high_is_an_error_and_takes_no_memory(
    folder: Path, place: str, count: int
) -> None:
    number = struct.pack("<Q", count)
    data = {
        "tensors": b"GGUF" + struct.pack("<I", 3) + number + bytes(48),
        "entries": b"GGUF" + struct.pack("<IQ", 3, 0) + number + bytes(40),
        "key": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + number + bytes(40),
        "text": with_a_tensor(entry("k", STRING, number)),
        "list": with_a_tensor(entry("k", ARRAY, array(FLOAT64, count, b""))),
        "texts": with_a_tensor(entry("k", ARRAY, array(STRING, count, text("a")))),
        "lists": with_a_tensor(entry("k", ARRAY, array(ARRAY, count, array(UINT32, 0, b"")))),
    }[place]
    with taking_less_than(1 << 20), pytest.raises(ModelError):
        read(folder, data)


def test_lists_of_lists_are_stepped_over(folder: Path) -> None:
    inner = array(UINT32, 2, bytes(8))
    data = with_a_tensor(
        entry("k", ARRAY, array(ARRAY, 2, inner + inner)),
        entry("after", UINT32, struct.pack("<I", 5)),
    )
    header = read(folder, data)
    assert (header.array_lengths, header.metadata) == ({"k": 2}, {"after": 5})


def test_lists_nested_without_end_are_an_error(folder: Path) -> None:
    with pytest.raises(ModelError, match="nested too deep"):
        read(folder, with_a_tensor(entry("k", ARRAY, array(ARRAY, 1, b"") * 100_000)))


@pytest.mark.parametrize("kind", [13, 255, (1 << 32) - 1])
def test_an_unknown_type_is_an_error(folder: Path, kind: int) -> None:
    with pytest.raises(ModelError, match="unknown value type"):
        read(folder, with_a_tensor(entry("k", kind, bytes(16))))
    with pytest.raises(ModelError, match="unknown value type"):
        read(folder, with_a_tensor(entry("k", ARRAY, array(kind, 0, bytes(16)))))


def test_text_that_is_not_utf_8_is_read(folder: Path) -> None:
    header = read(folder, with_a_tensor(entry("k", STRING, text(b"a\xffb"))))
    assert header.metadata == {"k": "a\ufffdb"}


@pytest.mark.parametrize("n_dimensions", [0, 5, 1 << 31])
def test_a_tensor_of_impossible_shape_is_an_error(folder: Path, n_dimensions: int) -> None:
    data = text("t") + struct.pack("<I", n_dimensions) + bytes(99)
    with pytest.raises(ModelError, match="dimensions"):
        read(folder, crafted(tensors=[data]))


@pytest.mark.parametrize("offset", [64, 1 << 40, (1 << 64) - 1])
def test_a_tensor_past_the_end_is_an_error(folder: Path, offset: int) -> None:
    head = crafted(tensors=[tensor("t", (4,), offset)])
    with pytest.raises(ModelError, match="past the end"):
        read(folder, head.ljust(-(-len(head) // 32) * 32 + 64, b"\0"))


def test_tensors_are_measured_by_where_the_next_begins(folder: Path) -> None:
    tensors = [tensor("b", (4,), 32), tensor("a", (4,), 0), tensor("c", (4,), 32)]
    head = crafted(tensors=tensors)
    header = read(folder, head.ljust(-(-len(head) // 32) * 32 + 64, b"\0"))
    assert {one.name: one.stored_bytes for one in header.tensors} == {"a": 32, "b": 0, "c": 32}


ALIGNMENTS = {
    "text": (STRING, text("many")),
    "digits": (STRING, text("9" * 5000)),
    "nan": (FLOAT32, struct.pack("<f", math.nan)),
    "infinite": (FLOAT32, struct.pack("<f", math.inf)),
    "zero": (UINT32, struct.pack("<I", 0)),
    "negative": (5, struct.pack("<i", -32)),
    "huge": (UINT64, struct.pack("<Q", (1 << 64) - 1)),
}


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_an_absurd_alignment_gives_a_header_or_a_model_error(folder: Path, name: str) -> None:
    kind, value = ALIGNMENTS[name]
    try:
        header = read(folder, with_a_tensor(entry("general.alignment", kind, value)))
    except ModelError:
        assert name not in {"zero", "negative"}
    else:
        assert [one.name for one in header.tensors] == ["t"]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_figure_that_is_no_number_is_its_default(folder: Path, value: float) -> None:
    data = with_a_tensor(
        entry("general.architecture", STRING, text("llama")),
        entry("llama.expert_count", FLOAT32, struct.pack("<f", value)),
    )
    assert read(folder, data).integer("expert_count", 3) == 3


@pytest.mark.slow
@common
@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 40),
)
def test_flipped_bytes_give_a_header_or_a_model_error(
    folder: Path, whole: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(whole)
    for at, value in changes:
        data[at % len(data)] = value
    with taking_less_than(1 << 20), suppress(ModelError):
        header = read(folder, bytes(data[: len(data) - cut]))
        assert all(0 <= one.stored_bytes <= len(data) for one in header.tensors)


def test_flipping_any_one_byte_gives_a_header_or_a_model_error(folder: Path, whole: bytes) -> None:
    outcomes = {"header": 0, "error": 0}
    for at in range(len(whole)):
        for mask in (0x01, 0x80):
            data = bytearray(whole)
            data[at] ^= mask
            try:
                read(folder, bytes(data))
                outcomes["header"] += 1
            except ModelError:
                outcomes["error"] += 1
    assert outcomes["header"] > 0
    assert outcomes["error"] > 0


def test_a_name_of_no_parts_is_its_own() -> None:
    assert parts(Path("big-00001-of-00000.gguf")) == [Path("big-00001-of-00000.gguf")]


def test_a_split_model_has_all_its_parts_and_another_is_its_own() -> None:
    folder = Path("models")
    split = [folder / f"big-0000{index}-of-00003.gguf" for index in (1, 2, 3)]
    assert parts(split[0]) == parts(split[2]) == split
    for name in ("big.gguf", "big-1-of-3.gguf", "big-00001-of-00003.bin"):
        assert parts(folder / name) == [folder / name]
