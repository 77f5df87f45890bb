"""Saved prompt caches on disk: bounded in size and age, and checked to the bit."""

import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.history import History
from app.paths import Paths
from app.prompt_cache import saved_states
from app.prompt_cache import saved_states as state_file
from app.prompt_cache.saved_states import (
    KEPT_SECONDS,
    KEY_BYTES,
    SavedStates,
    read_head,
    read_state,
    write_state,
)
from backends.base import CacheState

OURS, THEIRS = b"\1" * 32, b"\2" * 32


class Disk(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def states(tmp_path: Path) -> SavedStates:
    return SavedStates(tmp_path / "states", 3_500)


def save(states: SavedStates, token: int, *, age: float = 0.0, key: bytes = OURS) -> Path:
    """Keep a state of 1,000 bytes that was used age seconds ago."""
    before = files(states)
    state = np.full(1_000, token, dtype=np.uint8)
    assert states.save(key, [token], state, lambda: True)
    (path,) = files(states) - before
    set_used(path, age)
    return path


def set_used(path: Path, age: float) -> None:
    moment = time.time() - age
    os.utime(path, (moment, moment))


def files(states: SavedStates) -> set[Path]:
    return set(states.folder.iterdir()) if states.folder.exists() else set()


def tokens(states: SavedStates, key: bytes = OURS) -> list[int]:
    return sorted(token for saved in states.of(key) for token in saved.tokens)


def test_a_state_is_found_by_its_key_alone(states: SavedStates) -> None:
    save(states, 1)
    save(states, 2, key=THEIRS)
    (saved,) = states.of(OURS)
    assert saved.tokens == (1,)
    state = states.read(saved)
    assert state is not None
    assert set(state) == {1}
    assert len(state) == 1_000


def test_a_file_that_bears_anothers_name_is_left_alone(states: SavedStates) -> None:
    path = save(states, 1, key=THEIRS)
    path.rename(path.with_name(path.name.replace(THEIRS.hex()[:16], OURS.hex()[:16])))
    assert states.of(OURS) == []
    assert len(files(states)) == 1


def test_there_are_no_more_files_than_a_prompt_can_be_compared_with(
    states: SavedStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_states, "MOST_FILES", 2)
    for token, age in ((1, 30.0), (2, 20.0), (3, 10.0)):
        save(states, token, age=age)
    states.tidy()
    assert tokens(states) == [2, 3]


def test_what_was_used_longest_ago_goes_first(states: SavedStates) -> None:
    for token, age in ((1, 50.0), (2, 70.0), (3, 60.0)):
        save(states, token, age=age)
    oldest = next(saved for saved in states.of(OURS) if saved.tokens == (2,))
    assert states.read(oldest) is not None  # it is now the one used last
    save(states, 4)
    assert tokens(states) == [1, 2, 4]
    assert sum(path.stat().st_size for path in files(states)) <= states.most_bytes


def test_a_state_larger_than_the_bound_is_not_kept(states: SavedStates) -> None:
    save(states, 1)
    assert states.save(OURS, [2], np.zeros(4_000, dtype=np.uint8), lambda: True)
    assert tokens(states) == [1]


def test_at_most_a_tenth_of_the_free_disk_is_used(
    states: SavedStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    for token, age in ((1, 3.0), (2, 2.0), (3, 1.0)):
        save(states, token, age=age)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(0, 0, 20_000))
    states.tidy()
    assert tokens(states) == [2, 3]


def test_old_files_and_leftovers_go(states: SavedStates) -> None:
    save(states, 1, age=KEPT_SECONDS + 60)
    save(states, 2, age=KEPT_SECONDS - 60)
    at_work, left = (states.folder / f".a.state.{number}" for number in (1, 2))
    at_work.write_bytes(b"half")
    left.write_bytes(b"half")
    set_used(left, 100)
    states.tidy()
    assert tokens(states) == [2]
    assert at_work.exists()
    assert not left.exists()


def test_damaged_files_are_removed_when_they_are_met(states: SavedStates) -> None:
    head, body = save(states, 1), save(states, 2)
    head.write_bytes(head.read_bytes()[:90])
    assert tokens(states) == [2]
    assert not head.exists()
    body.write_bytes(body.read_bytes()[:-1] + b"\0")
    (saved,) = states.of(OURS)
    assert states.read(saved) is None
    assert files(states) == set()


def test_a_file_that_vanishes_is_no_error(states: SavedStates) -> None:
    path = save(states, 1)
    (saved,) = states.of(OURS)
    path.unlink()
    assert states.read(saved) is None
    states.remove(saved)


def test_a_full_disk_is_no_error(states: SavedStates, monkeypatch: pytest.MonkeyPatch) -> None:
    save(states, 1)

    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert states.save(OURS, [2], np.zeros(100, dtype=np.uint8), lambda: True)
    assert tokens(states) == [1]
    assert len(files(states)) == 1


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    states = SavedStates(tmp_path / "file" / "states")
    assert states.save(OURS, [2], np.zeros(100, dtype=np.uint8), lambda: True)
    assert states.of(OURS) == []
    states.tidy()
    states.clear()


def test_a_save_that_is_given_up_says_so(states: SavedStates) -> None:
    assert not states.save(OURS, [2], np.zeros(100, dtype=np.uint8), lambda: False)
    assert files(states) == set()


def test_the_folder_is_its_owners_alone_and_clearing_leaves_nothing(states: SavedStates) -> None:
    save(states, 1)
    save(states, 2, key=THEIRS)
    assert stat.S_IMODE(states.folder.stat().st_mode) == 0o700
    (states.folder / ".a.state.1").write_bytes(b"half")
    states.clear()
    assert files(states) == set()


@pytest.mark.parametrize(("hours", "left"), [(23, 1), (25, 0)])
def test_states_go_with_the_chats_that_are_deleted_for_good(
    specchat: Callable[..., CompletedProcess[str]], hours: int, left: int
) -> None:
    paths = Paths.of_this_user()
    with closing(History.open(paths.history)) as history:
        history.remove(history.create("demo"))
    with closing(sqlite3.connect(paths.history)) as connection:
        connection.execute("UPDATE chats SET removed = removed - ?", (3600 * hours,))
        connection.commit()
    states = SavedStates(paths.saved_states)
    save(states, 1)
    assert specchat("chats", "list").returncode == 0
    assert len(files(states)) == left


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


def test_what_was_written_is_read_by_its_owner_alone(path: Path) -> None:
    assert whole(path) == (KEY, TOKENS, content().tobytes())
    assert [file.name for file in path.parent.iterdir()] == ["one.state"]
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


@pytest.mark.slow
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
