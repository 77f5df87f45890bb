"""Files of earlier versions open, with all that was in them."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.history import History

# As version 1 of the layout was: a file that a person has.
_VERSION_1 = """
CREATE TABLE chats (
    number INTEGER PRIMARY KEY, title TEXT NOT NULL DEFAULT '', model TEXT NOT NULL,
    system TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL, removed REAL
);
CREATE TABLE messages (
    number INTEGER PRIMARY KEY, chat INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE,
    role TEXT NOT NULL, text TEXT NOT NULL, ending TEXT NOT NULL, created REAL NOT NULL
);
CREATE INDEX messages_by_chat ON messages (chat, number);
CREATE VIRTUAL TABLE words USING fts5 (text, content='messages', content_rowid='number');
CREATE TRIGGER message_added AFTER INSERT ON messages BEGIN
    INSERT INTO words (rowid, text) VALUES (new.number, new.text);
END;
CREATE TRIGGER message_gone AFTER DELETE ON messages BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.number, old.text);
END;
CREATE TRIGGER message_changed AFTER UPDATE OF text ON messages BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.number, old.text);
    INSERT INTO words (rowid, text) VALUES (new.number, new.text);
END;
INSERT INTO chats (title, model, system, created, updated)
    VALUES ('Whales', 'demo', 'be brief', 1, 2);
INSERT INTO messages (chat, role, text, ending, created)
    VALUES (1, 'user', 'about whales', '', 1);
PRAGMA user_version = 1;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "chats.sqlite3"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(_VERSION_1)
    return file


def test_a_file_of_version_1_is_brought_to_the_present(path: Path) -> None:
    for _ in range(2):
        with closing(History.open(path)) as history:
            (chat,) = history.chats("whal")
            assert (chat.title, chat.system, chat.messages) == ("Whales", "be brief", 1)
            assert history.settings(chat.number) == "{}"
    with closing(History.open(path)) as history:
        history.set_settings(1, '{"top_k": 3}')
        history.add(1, "assistant", "they are big")
        assert history.settings(1) == '{"top_k": 3}'
        assert history.settings(history.create("demo")) == "{}"
        assert len(history.chats("big")) == 1


def test_two_programs_may_bring_it_to_the_present(path: Path) -> None:
    with closing(History.open(path)) as first, closing(History.open(path)) as second:
        second.set_settings(1, '{"seed": 1}')
        assert first.settings(1) == '{"seed": 1}'
