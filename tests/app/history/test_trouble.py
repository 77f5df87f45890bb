"""Whatever happens to the file of the chats is told as one kind of error, and nothing is lost."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from app.history import History, HistoryError

_PAGE = 4096
_DISK_FULL_FOR_A_WHILE = """
import resource, signal, sys
from pathlib import Path
from app.history import History, HistoryError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
history = History.open(Path(sys.argv[1]))
chat = history.create("demo")
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, most))
try:
    while True:
        history.add(chat, "user", "x" * 5000)
except HistoryError as error:
    print("rollback" in str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
saved = len(history.messages(chat))
history.add(chat, "user", "room again")
print(len(history.messages(chat)) - saved)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.sqlite3"


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    with closing(History.open(path)) as opened:
        yield opened


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be deleted there")
def test_a_deleted_file(history: History, path: Path) -> None:
    chat = history.create("demo")
    path.unlink()
    with pytest.raises(HistoryError, match="was deleted"):
        history.add(chat, "user", "would be lost")
    with closing(History.open(path)) as other:
        other.create("demo")
        with pytest.raises(HistoryError, match="another file"):
            history.add(chat, "user", "would be lost too")


def test_a_damaged_file(path: Path) -> None:
    with closing(History.open(path)) as history:
        chat = history.create("demo")
        for _ in range(300):
            history.add(chat, "user", "y" * 2000)
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(40 * _PAGE)  # the tables begin before it
        file.write(b"\xee" * (size - 40 * _PAGE))
    with pytest.raises(HistoryError, match="malformed"):
        History.open(path, repairs=False)
    damaged = path.read_bytes()
    with closing(History.open(path)) as history:
        saved = history.messages(chat)
        assert {one.text for one in saved} == {"y" * 2000}
        assert f"{len(saved)} messages were recovered" in history.news()
        assert history.news() == ""
        history.add(chat, "user", "more")
    (kept,) = path.parent.glob("*.damaged-*")
    assert kept.read_bytes() == damaged


def test_a_database_of_another_program(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE chats (something)")
    with pytest.raises(HistoryError, match="cannot open the chats"):
        History.open(path)


def test_a_closed_history(history: History) -> None:
    history.close()
    with pytest.raises(HistoryError, match="closed"):
        history.create("demo")


def test_a_chat_that_never_was(history: History) -> None:
    assert history.add(7, "user", "for nobody") == 0
    with pytest.raises(HistoryError, match="too large"):
        history.chat(10**30)
    assert history.messages(7) == []
    history.add(history.create("demo"), "user", "and on it goes")


def test_halves_of_characters_are_replaced(history: History) -> None:
    chat = history.create("caf\udce9.gguf", "\ud800")
    history.add(chat, "user", "half \ud83d of it")
    (saved,) = history.messages(chat)
    assert saved.text == "half ? of it"
    assert history.chat(chat).model == "caf?.gguf"


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_after_a_full_disk_it_goes_on(path: Path) -> None:
    command = [sys.executable, "-c", _DISK_FULL_FOR_A_WHILE, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "1"]


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o500)
    try:
        with pytest.raises(HistoryError, match="cannot open the chats"):
            History.open(path)
    finally:
        path.parent.chmod(0o700)


def test_several_programs_make_the_file_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.history.database._WAIT_SECONDS", 60.0)
    together = Barrier(4)

    def create(path: Path) -> int:
        together.wait()
        with closing(History.open(path)) as history:
            return history.create("demo")

    with ThreadPoolExecutor(4) as programs:
        for place in range(20):
            path = tmp_path / f"{place}.sqlite3"
            assert sorted(programs.map(create, [path] * 4)) == [1, 2, 3, 4]


def test_what_is_purged_leaves_no_text_and_a_sound_index(history: History, path: Path) -> None:
    chat, other = history.create("demo"), history.create("demo")
    history.add(chat, "user", "a secret, told in confidence")
    history.add(other, "user", "in public")
    history.remove(chat)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE chats SET removed = 0 WHERE number = ?", (chat,))
        connection.commit()
    history.purge()
    assert [found.number for found in history.chats("in")] == [other]
    history.close()
    assert b"told in confidence" not in path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


_TEXTS = """
import sys
from contextlib import closing
from pathlib import Path
from app.history import History
with closing(History.open(Path(sys.argv[1]))) as history:
    for chat in history.chats(limit=9):
        print(*(message.text for message in history.messages(chat.number)), sep="|")
"""


def read_by_another_process(path: Path) -> str:
    """Texts of all chats; leaving, the process tidies up as the last one to use the file would."""
    command = [sys.executable, "-c", _TEXTS, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def test_what_is_written_after_another_connection_was_closed_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    with closing(History.open(path)) as history:
        chat = history.create("model")
        history.add(chat, "user", "first")
        with closing(History.open(path, repairs=False)):  # as the index of earlier chats does
            pass
        assert read_by_another_process(path) == "first"
        history.add(chat, "user", "second")
        assert read_by_another_process(path) == "first|second"
