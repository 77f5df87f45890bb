"""A damaged database gives every row that can be read by any plain way, and no older one."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.dialogue.dialogue import Dialogue
from app.history import History, HistoryError
from app.history.records import Saved, shown_path
from app.history.repair import repair
from scripts.fuzzing.damage import damaged
from tests.fixtures.damaged_chats import by_sqlite, filled, in_whole_pages

_PAGE = 4096
_FILE = Attachment(AttachmentKind.FILE, "a.md", "walrus")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.sqlite3"


@pytest.mark.parametrize(
    "count",
    [40, pytest.param(200, marks=pytest.mark.slow), pytest.param(2000, marks=pytest.mark.nightly)],
)
def test_no_row_is_lost_that_can_be_read(tmp_path: Path, count: int) -> None:
    good: list[tuple[dict[int, str], bytes, bytes]] = []
    for seed in range(4):
        path = tmp_path / f"{seed}.sqlite3"
        texts = filled(path, Random(seed), in_log=seed % 2 == 1)
        log = path.with_name(f"{path.name}-wal")
        good.append((texts, path.read_bytes(), log.read_bytes() if log.exists() else b""))
    repaired = 0
    for seed in range(count):
        random = Random(seed)
        texts, data, log = good[seed % len(good)]
        now = data if log and seed % 4 == 1 else damaged(data, random)
        now_log = damaged(log, random) if log and seed % 4 == 1 else log
        wanted = set() if log else in_whole_pages(texts, data, now)
        wanted |= by_sqlite(_written(tmp_path / "plain", now, now_log)) & set(texts.values())
        with closing(History.open(_written(tmp_path / "ours", now, now_log))) as history:
            chats = history.chats(limit=1_000_000)
            found = {one.text for chat in chats for one in history.messages(chat.number)}
            repaired += bool(history.news())
        assert wanted <= found, f"seed {seed}: {len(wanted - found)} of {len(wanted)} are lost"
    assert repaired >= count // 10


def _written(path: Path, data: bytes, log: bytes) -> Path:
    path.write_bytes(data)
    for suffix in ("-wal", "-shm"):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
    if log:
        path.with_name(f"{path.name}-wal").write_bytes(log)
    return path


def test_what_was_deleted_does_not_come_back(path: Path) -> None:
    with closing(History.open(path)) as history:
        chat = history.create("demo")
        numbers = [history.add(chat, "user", f"{n} {'x' * 900}") for n in range(20)]
    with closing(History.open(path)) as history:
        for number in reversed(numbers[10:]):
            history.withdraw(chat, number)
        held = [path.read_bytes(), path.with_name(f"{path.name}-wal").read_bytes()]
    _written(path, *held)
    assert "10 messages were recovered" in repair(path, 1.0, is_ours=True)
    with closing(History.open(path)) as history:
        assert [one.number for one in history.messages(chat)] == numbers[:10]


def test_damage_that_is_met_in_use_is_repaired_in_use(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = filled(path, Random(1))
    monkeypatch.setattr("app.history.schema._MOST_CHECKED_BYTES", 0)
    with closing(History.open(path)) as history, path.open("r+b") as file:
        history.messages(1)
        place = path.read_bytes().find(texts[40][:50].encode()) // _PAGE * _PAGE
        file.seek(place)
        file.write(b"\xee" * 8)
        file.flush()
        os.utime(path)
        history._connection.execute("PRAGMA shrink_memory")
        number = history.add(1, "user", "after the damage")
        shown = {one.number: one.text for one in history.messages(1)}
        assert shown[number] == "after the damage"
        found = {one.text for chat in history.chats() for one in history.messages(chat.number)}
        assert len(found & set(texts.values())) >= 30
        assert "was damaged" in history.news()


@pytest.fixture
def branched(path: Path) -> Path:
    """A chat with two versions of its first question, files and a queue."""
    with closing(History.open(path)) as history:
        chat = history.create("demo", folder="/home/ann/notes")
        first = history.add(chat, "user", "first", attachments=[_FILE], parent=0)
        history.add(chat, "assistant", "to the first", "3 tokens", parent=first)
        history.add(chat, "user", "edited", parent=0)
        history.show(chat, 0, first)
        history.enqueue(chat, "waits", [_FILE])
    return path


def damage_index(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET sql = 'nonsense' WHERE name = 'words'")
        connection.commit()


def test_versions_files_and_the_queue_are_recovered(branched: Path) -> None:
    damage_index(branched)
    with closing(History.open(branched)) as history:
        assert "recovered" in history.news()
        assert [one.text for one in history.path(1)] == ["first", "to the first"]
        assert history.facts(1)["folder"] == "/home/ann/notes"
        assert history.path(1)[0].attachments == (_FILE,)
        assert [one.text for one in history.messages(1)] == ["first", "to the first", "edited"]
        assert [(one.text, one.attachments) for one in history.queue(1)] == [("waits", (_FILE,))]
        assert (history.chat(1).title, history.chat(1).versions) == ("first", 2)
        assert len(history.chats("walrus")) == 1


def test_what_followed_a_lost_message_is_shown_after_the_one_before(branched: Path) -> None:
    with closing(sqlite3.connect(branched)) as connection:
        connection.execute("DELETE FROM messages WHERE number = 1")
        connection.execute("UPDATE messages SET parent = 99 WHERE number = 3")
        connection.commit()
    damage_index(branched)
    with closing(History.open(branched)) as history:
        assert [one.text for one in history.messages(1)] == ["to the first", "edited"]
        assert [one.text for one in history.path(1)] == ["to the first", "edited"]
        (lost,) = history.messages(0)
        assert (lost.text, lost.attachments) == ("a.md", (_FILE,))


def test_damaged_links_are_read_without_a_loop(path: Path) -> None:
    with closing(History.open(path)) as history:
        chat = history.create("demo")
        for text in ("one", "two", "three"):
            history.add(chat, "user", text)
    for parent in ("number", "number + 1", "'text'", "x'ff'", "-5", "9e99", "1"):
        for shown in ("number", "1", "'text'", "9e99", "0"):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(f"UPDATE messages SET parent = {parent}, shown = {shown}")
                connection.execute(f"UPDATE chats SET shown = {shown}")
                connection.commit()
            with closing(History.open(path)) as history:
                assert history.path(chat)
                assert [one.text for one in history.messages(chat)] == ["one", "two", "three"]
                assert history.preview(chat).question
                assert len(history.chats()) == len(history.versions()) == 1
                dialogue = Dialogue(history)
                dialogue.open(chat)
                assert dialogue.turns


def test_messages_without_their_chat_get_one(path: Path) -> None:
    with closing(History.open(path)) as history:
        chat = history.create("demo")
        history.add(chat, "user", "Where do whales sleep?")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM chats")
        connection.commit()
    with closing(History.open(path)) as history:
        assert history.chat(chat).title == "Where do whales sleep?"
        assert [one.text for one in history.messages(chat)] == ["Where do whales sleep?"]


def test_a_text_of_which_a_part_is_left_is_shown_as_incomplete(path: Path) -> None:
    with closing(History.open(path)) as history:
        chat = history.create("demo")
        history.add(chat, "user", "begins here " + "xy " * 7000)
    data = bytearray(path.read_bytes())
    chained = [
        start
        for start in range(0, len(data), _PAGE)
        if b"xy xy xy" in data[start + 4 : start + 104] and any(data[start : start + 4])
    ]
    data[chained[-1] : chained[-1] + 4] = bytes(4)
    path.write_bytes(data)
    with closing(History.open(path)) as history:
        (saved,) = history.messages(chat)
        assert saved.text.startswith("begins here xy xy")
        assert saved.ending == "incomplete: the file was damaged"


@pytest.mark.parametrize("table", ["chats", "messages", "words", "messages_by_chat"])
def test_undecodable_text_in_the_schema(path: Path, table: str) -> None:
    with closing(History.open(path)) as history:
        history.add(history.create("demo"), "user", "hello")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        for column in ("sql", "name"):
            damaged_text = f"CAST(x'ff' || {column} AS TEXT)"
            update = f"UPDATE sqlite_schema SET {column} = {damaged_text} WHERE name = ?"
            connection.execute(update, (table,))
        connection.commit()
    with closing(History.open(path)) as history:
        assert [one.text for one in history.messages(1)] == ["hello"]
        assert len(history.chats("hello")) == 1


def test_columns_of_the_wrong_kind_are_shown_as_they_can_be(path: Path) -> None:
    with closing(History.open(path)) as history:
        for text in ("one", "two"):
            history.add(history.create("demo"), "user", text)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE messages SET text = x'61ff62', role = 7, created = 'now'")
        connection.execute("UPDATE chats SET title = CAST(x'61ff62' AS TEXT), updated = 1e308")
        connection.commit()
    with closing(History.open(path)) as history:
        assert [chat.title for chat in history.chats("a")] == ["a\ufffdb"] * 2
        (saved,) = history.messages(1)
        assert (saved.text, saved.role, saved.created) == ("a\ufffdb", "7", 0.0)
        assert history.chat(1).updated == 0.0
        assert history.questions() == []
        assert len(history.versions()) == 2


@pytest.mark.skipif(os.name == "nt", reason="files of POSIX")
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_pipe_or_a_folder_in_its_place_is_named(path: Path, suffix: str) -> None:
    place = path.with_name(f"{path.name}{suffix}")
    os.mkfifo(place)
    with pytest.raises(HistoryError, match="not a regular file"):
        History.open(path)
    place.unlink()
    place.mkdir()
    with pytest.raises(HistoryError, match="not a regular file"):
        History.open(path)


def test_a_database_of_another_program_gets_no_tables_of_ours(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE places (url)")
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="another program"):
        History.open(path)
    assert path.read_bytes() == before


def test_a_message_that_follows_itself_is_shown_once() -> None:
    """Its number is 0, which stands for none: foreign programs may write it."""
    messages = [Saved(0, "user", "itself", "", 0.0), Saved(3, "user", "another", "", 0.0)]
    assert shown_path(messages, 0) == messages[:1]
    assert shown_path(messages, 3) == messages[1:]
