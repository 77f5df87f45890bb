"""The file of a saved state: whole or nothing, whatever happens to its bytes."""

import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.prompt_cache import saved_states as state_file
from app.prompt_cache.saved_states import KEY_BYTES, read_head, read_state, write_state
from backends.base import CacheState

KEY = bytes(range(KEY_BYTES))
TOKENS = [5, 0, 49_151, 7]


def content(size: int = 40) -> CacheState:
    return np.arange(size, dtype=np.uint8)


def whole(path: Path) -> tuple[bytes, list[int], bytes] | None:
    """What a file says, None where any of it is damaged."""
    saved = read_head(path)
    state = read_state(saved) if saved is not None else None
    return None if saved is None or state is None else (saved.key, [*saved.tokens], state.tobytes())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "states" / "one.state"
    path.parent.mkdir()
    assert write_state(path, KEY, TOKENS, content(), lambda: True)
    return path


def test_what_was_written_is_read(path: Path) -> None:
    assert whole(path) == (KEY, TOKENS, content().tobytes())
    assert [file.name for file in path.parent.iterdir()] == ["one.state"]


def test_only_its_owner_may_read_it(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_state_of_many_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "_PIECE_BYTES", 7)
    assert write_state(tmp_path / "a", KEY, TOKENS, content(100), lambda: True)
    assert whole(tmp_path / "a") == (KEY, TOKENS, content(100).tobytes())


def test_what_is_no_longer_wanted_leaves_nothing_and_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_file, "_PIECE_BYTES", 16)
    wanted = iter([True, True, False])
    assert not write_state(path, KEY, [1], content(), lambda: next(wanted))
    assert whole(path) == (KEY, TOKENS, content().tobytes())
    assert len(list(path.parent.iterdir())) == 1


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert whole(path) is None, length
    path.write_bytes(data + b"x")
    assert whole(path) is None


def test_any_flipped_bit_is_noticed(path: Path) -> None:
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert whole(path) is None, bit


@given(st.binary(max_size=300), st.booleans())
def test_any_other_file_is_refused(data: bytes, begins_like_one: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any"
        path.write_bytes(state_file.MAGIC * begins_like_one + data)
        assert whole(path) is None


def test_a_file_shortened_between_head_and_state_is_refused(path: Path) -> None:
    saved = read_head(path)
    assert saved is not None
    path.write_bytes(path.read_bytes()[:-1])
    assert read_state(saved) is None
