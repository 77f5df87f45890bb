"""Whatever JSON a hub calls a listing is read, or refused with a reason."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import DownloadError, UsageError
from models.hub.repository import (
    Repository,
    RepositoryFile,
    files_wanted,
    is_safe,
    parse_listing,
    require_distinct,
)
from models.names import is_model_file, quantization_of

SHA1, SHA256 = "a" * 40, "b" * 64
SMALL = {"rfilename": "config.json", "size": 7, "blobId": SHA1}
LARGE = {
    "rfilename": "Model-Q4_K_M.gguf",
    "size": 200,
    "blobId": SHA1,
    "lfs": {"sha256": SHA256, "size": 200, "pointerSize": 134},
}
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([SHA1, SHA256, "../a", "a.gguf", -1, 0, 2**70, 200]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
places = st.sampled_from(
    [
        ("sha",),
        ("siblings",),
        ("siblings", 0),
        ("siblings", 1, "lfs"),
        *(("siblings", 0, name) for name in ("rfilename", "size", "blobId", "lfs")),
        *(("siblings", 1, name) for name in ("rfilename", "size", "blobId")),
        *(("siblings", 1, "lfs", name) for name in ("sha256", "size")),
    ]
)


def _listing() -> dict[str, Any]:
    listing = {"id": "maker/Model", "sha": SHA1, "siblings": [SMALL, LARGE]}
    return json.loads(json.dumps(listing))


def test_a_listing_is_read() -> None:
    repository = parse_listing("maker/Model", json.dumps(_listing()).encode())
    assert repository.commit == SHA1
    assert repository.files == (
        RepositoryFile("config.json", 7, SHA1),
        RepositoryFile("Model-Q4_K_M.gguf", 200, SHA256),
    )


@given(places, values)
@settings(max_examples=200)
def test_another_value_anywhere_is_refused_or_harmless(
    place: tuple[str | int, ...], value: object
) -> None:
    listing = _listing()
    inner: Any = listing
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    try:
        repository = parse_listing("maker/Model", json.dumps(listing).encode())
    except ValueError:
        return
    assert repository.commit == listing["sha"]
    for file in repository.files:
        assert is_safe(file.path)
        assert type(file.size_bytes) is int
        assert 0 <= file.size_bytes < 2**63
        assert len(file.digest) in (40, 64)
        assert set(file.digest) <= set("0123456789abcdef")


@pytest.mark.parametrize("content", [b"", b"\xff", b"[", b"1", b'"a"', b"null", b"{}", b"[{}]"])
def test_what_is_no_listing_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_listing("maker/Model", content)


SAFE = [
    "model.gguf",
    "Q8_0/Model-Q8_0-00001-of-00003.gguf",
    ".gitattributes",
    "config (1).json",
    "模型/größe.gguf",
    "console.gguf",
    "a..b.gguf",
    "~/model.gguf",
    "x" * 200,
]
UNSAFE = [
    *("", ".", "..", "/", "/a", "a/", "a//b", "../a", "a/..", "a/../b", "./a", "a/./b"),
    *("C:a", "C:/a", "\\a", "a\\b", "..\\a", "//host/a", "\\\\?\\C:\\a", "a:stream"),
    *("con", "CON.gguf", "nul.tar.gz", "a/aux/b", "COM1", "lpt9.txt", "com¹"),
    *("CONIN$", "con .gguf"),
    *("a.", "a /b", "a ", "a*", "a?", 'a"', "<a", "a|b", "...", "a\0", "a\nb", "a\x7f", "a\x9b"),
    *("a\u202eb", "a\u200bb", "a\ud800", "x" * 201, "ä" * 101, "a/" * 600 + "a"),
]


@pytest.mark.parametrize("path", SAFE)
def test_paths_as_models_have_them_are_safe(path: str) -> None:
    assert is_safe(path)


@pytest.mark.parametrize("path", UNSAFE)
def test_paths_that_lead_out_or_mean_something_are_not(path: str) -> None:
    assert not is_safe(path)


@pytest.mark.parametrize(
    ("wanted", "listed"),
    [
        ("a.gguf", ["A.gguf"]),
        ("Q4/a.gguf", ["q4/A.GGUF"]),
        ("gr\u00f6\u00dfe.gguf", ["gro\u0308\u00dfe.gguf"]),
        ("stra\u00dfe.gguf", ["STRASSE.gguf"]),
        ("a.gguf", ["a.gguf/b"]),
        ("a.gguf", ["A.gguf/b/c"]),
        ("a/b/c.gguf", ["a"]),
        ("a/b/c.gguf", ["A/B"]),
    ],
)
def test_two_files_never_share_a_place(wanted: str, listed: list[str]) -> None:
    with pytest.raises(ValueError, match="listed"):
        require_distinct([wanted], [wanted, *listed])


def test_what_is_not_wanted_may_collide() -> None:
    require_distinct(["a/b.gguf"], ["a/b.gguf", "a/c.gguf", "README.md", "readme.md", "ab"])


FILES = {
    "README.md": 1_000,
    "Model-IQ4_XS.gguf": 3_000_000_000,
    "Model-Q4_K_M.gguf": 4_000_000_000,
    "Model-UD-Q4_K_XL.gguf": 4_500_000_000,
    "model-q8_0.gguf": 8_000_000_000,
    "mmproj-Model-F16.gguf": 900_000_000,
    "Model.imatrix.gguf": 5_000_000,
    "BF16/Model-BF16-00002-of-00002.gguf": 7_000_000_000,
    "BF16/Model-BF16-00001-of-00002.gguf": 9_000_000_000,
    "F32/Model-F32-00001-of-00002.gguf": 9_000_000_000,
}


def _repository(files: dict[str, int]) -> Repository:
    found = (RepositoryFile(path, size, "0" * 64) for path, size in files.items())
    return Repository("maker/Model-GGUF", "0" * 40, tuple(found))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, ["Model-Q4_K_M.gguf"]),
        ("Q4_K_M", ["Model-Q4_K_M.gguf"]),
        ("iq4_xs", ["Model-IQ4_XS.gguf"]),
        ("q4_k_xl", ["Model-UD-Q4_K_XL.gguf"]),
        ("ud-q4_k_xl", ["Model-UD-Q4_K_XL.gguf"]),
        ("Q8_0", ["model-q8_0.gguf"]),
        ("MODEL-Q8_0.GGUF", ["model-q8_0.gguf"]),
        ("Model-Q4_K_M", ["Model-Q4_K_M.gguf"]),
        *(
            (name, [f"BF16/Model-BF16-0000{part}-of-00002.gguf" for part in (1, 2)])
            for name in ("bf16", "Model-BF16", "Model-BF16-00002-of-00002.gguf")
        ),
    ],
)
def test_a_wish_is_understood(wanted: str | None, expected: list[str]) -> None:
    """A model comes with the projector in its folder."""
    beside = [] if "/" in expected[0] else ["mmproj-Model-F16.gguf"]
    found = files_wanted(_repository(FILES), wanted)
    assert [file.path for file in found] == [*expected, *beside]


def test_a_drafter_trained_for_one_model_is_had_by_its_name_alone() -> None:
    """Or where the repository has nothing else."""
    head = {"MTP/mtp-Model-Q8_0.gguf": 900_000_000}
    named = files_wanted(_repository(FILES | head), "MTP/mtp-Model-Q8_0.gguf")
    assert [file.path for file in named] == list(head)
    assert [file.path for file in files_wanted(_repository(head), None)] == list(head)
    with pytest.raises(UsageError):
        files_wanted(_repository(FILES | head), "mtp")


def test_a_single_model_needs_no_wish() -> None:
    files = {"Model-Q8_0.gguf": 1, "mmproj-Model.gguf": 1}
    assert files_wanted(_repository(files), None)[0].path == "Model-Q8_0.gguf"


def test_of_several_projectors_the_smallest_of_the_models_own_comes() -> None:
    files = {"gemma-3-4b-it-Q4_K_M.gguf": 9, "mmproj-gemma-3-4b-it-F32.gguf": 4}
    files |= {"mmproj-gemma-3-4b-it-F16.gguf": 2, "mmproj-gemma-3-12b-it-F16.gguf": 1}
    found = files_wanted(_repository(files), "Q4_K_M")
    assert [one.path for one in found][1:] == ["mmproj-gemma-3-4b-it-F16.gguf"]


@pytest.mark.parametrize("wanted", ["Q4_K_S", "F16", "mmproj-Model-F16.gguf", "", "README.md"])
def test_what_is_not_there_is_told_with_what_is(wanted: str) -> None:
    with pytest.raises(UsageError) as unknown:
        files_wanted(_repository(FILES), wanted)
    for offered in ("IQ4_XS (3.0 GB)", "Q4_K_M (4.0 GB)", "Q8_0 (8.0 GB)", "BF16 (16.0 GB)"):
        assert offered in unknown.value.why
    assert "mmproj" not in unknown.value.why


def test_the_nearest_come_first() -> None:
    with pytest.raises(UsageError, match=r"nearest is Q4_K_M \(4\.0 GB\)") as unknown:
        files_wanted(_repository(FILES), "q4_k_s")
    assert unknown.value.remedy.endswith("maker/Model-GGUF:Q4_K_M")


def test_several_that_answer_are_named() -> None:
    files = {"Base-Q4_0.gguf": 1_000, "Chat-Q4_0.gguf": 2_000}
    with pytest.raises(UsageError, match=r"Base-Q4_0\.gguf \(1\.0 kB\), Chat-Q4_0\.gguf"):
        files_wanted(_repository(files), "Q4_0")


def test_missing_parts_are_told() -> None:
    with pytest.raises(DownloadError, match="only 1 of them"):
        files_wanted(_repository(FILES), "F32")


def test_a_repository_without_models() -> None:
    with pytest.raises(UsageError, match="no model that can be run"):
        files_wanted(_repository({"README.md": 1, "model.bin": 2}), None)
    with pytest.raises(UsageError, match="one folder"):
        files_wanted(_repository({"config.json": 1, "model.safetensors": 2}), "Q4_K_M")


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("Llama-3.2-3B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-0.5b-instruct-fp16.gguf", "FP16"),
        ("gemma-3-4b-it-q4_0.gguf", "Q4_0"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("model.Q5_K_S.gguf", "Q5_K_S"),
        ("Model-IQ2_XXS-00001-of-00003.gguf", "IQ2_XXS"),
        ("Model-Q8-v2.gguf", "Q8"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("TQ1_0.gguf", "TQ1_0"),
        ("plain.gguf", None),
    ],
)
def test_quantizations_in_names(name: str, quantization: str | None) -> None:
    assert quantization_of(name) == quantization
    assert is_model_file(name)


@pytest.mark.parametrize(
    ("name", "is_model"),
    [
        ("MTP/mtp-gemma-4-E4B-it-Q8_0.gguf", False),
        ("eagle3-gpt-oss-20b-Q8_0.gguf", False),
        ("Qwen3.8-27B-DFlash2-Q4_K_M.gguf", False),
        ("LFM2.5-2.6B-DSpark-F16.gguf", False),
        ("Qwen3.6-27B-MTP-UD-IQ3_XXS.gguf", True),
        ("my-assistant-Q4_K_M.gguf", True),
    ],
)
def test_drafters_trained_for_one_model_are_no_models(name: str, is_model: bool) -> None:
    assert is_model_file(name) is is_model
