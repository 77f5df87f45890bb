"""Whatever JSON a hub calls a listing is read, or refused with a reason."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hub.repository import RepositoryFile, is_safe, parse_listing

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
