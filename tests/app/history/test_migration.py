"""Files of earlier versions open, with all that was in them."""

import datetime
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.history import History
from app.history.export import write_export

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

# What version 2 added, with chats as it left them: an interrupted lossy answer, a name of the
# user's own, a question with a file in its text, and a chat without messages.
_VERSION_2 = """
ALTER TABLE chats ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';
PRAGMA user_version = 2;
UPDATE chats SET title = 'about whales';
INSERT INTO messages (chat, role, text, ending, created) VALUES
    (1, 'assistant', 'they are big', '3 tokens', 2), (1, 'user', 'how big?', '', 3);
INSERT INTO chats (title, model, system, created, updated, settings) VALUES
    ('Named', 'demo', '', 3, 4, '{"top_k": 3}'), ('', 'demo', '', 4, 5, '{}');
INSERT INTO messages (chat, role, text, ending, created) VALUES
    (2, 'user', 'see @a.md' || char(10, 10) || 'a.md:' || char(10) || '```', '', 4),
    (1, 'assistant', 'very', '', 5),
    (2, 'assistant', 'I see', 'lossy: typical', 6);
"""
_EXPORTED = """{
 "schema": 1,
 "number": 1,
 "title": "about whales",
 "model": "demo",
 "system": "be brief",
 "created": 1.0,
 "updated": 2.0,
 "messages": [
  {
   "role": "user",
   "text": "about whales",
   "ending": "",
   "created": 1.0
  },
  {
   "role": "assistant",
   "text": "they are big",
   "ending": "3 tokens",
   "created": 2.0
  },
  {
   "role": "user",
   "text": "how big?",
   "ending": "",
   "created": 3.0
  },
  {
   "role": "assistant",
   "text": "very",
   "ending": "",
   "created": 5.0
  }
 ]
}
"""
"""As version 2 exported it, byte for byte."""


@pytest.fixture
def version_2(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_VERSION_2)
    return path


def test_chats_of_version_2_become_trees_of_one_branch(version_2: Path) -> None:
    for _ in range(2):
        with closing(History.open(version_2)) as history:
            first, second = sorted(history.chats(), key=lambda chat: chat.number)
            assert (first.versions, first.is_interrupted, first.title) == (1, True, "about whales")
            assert (second.versions, second.title) == (1, "Named")
            assert [one.text for one in history.path(1)] == [
                "about whales", "they are big", "how big?", "very",
            ]  # fmt: skip
            assert [one.parent for one in history.path(1)] == [0, 1, 2, 3]
            assert [one.ending for one in history.path(2)] == ["", "lossy: typical"]
            assert history.facts(2)["settings"] == '{"top_k": 3}'


def test_exports_are_the_same_before_and_after(version_2: Path, tmp_path: Path) -> None:
    with closing(History.open(version_2)) as history:
        written = write_export(history, 1, tmp_path / "chat.json")
        exported = written.read_text(encoding="utf-8")
        assert exported.startswith(_EXPORTED.removesuffix("\n}\n")), "further keys come last"
        text = write_export(history, 2, tmp_path / "chat.md").read_text(encoding="utf-8")
    assert text == (
        f"# Named\n\n{datetime.date.fromtimestamp(3)}, demo\n\n**User**\n\nsee @a.md\n\na.md:\n```"
        "\n\n**Assistant**\n\nI see\n\n*lossy: typical*\n"
    )


def test_only_a_title_that_the_user_did_not_choose_follows_the_question(version_2: Path) -> None:
    with closing(History.open(version_2)) as history:
        for chat, title in ((1, "edited"), (2, "Named")):
            history.add(chat, "user", "edited", parent=0)
            assert history.chat(chat).title == title


@pytest.mark.parametrize("version", [1, 2])
def test_a_damaged_file_of_an_earlier_version_is_recovered(
    request: pytest.FixtureRequest, version: int, path: Path
) -> None:
    if version == 2:
        request.getfixturevalue("version_2")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET sql = 'nonsense' WHERE name = 'words'")
        connection.commit()
    with closing(History.open(path)) as history:
        assert "recovered" in history.news()
        texts = ["about whales", "they are big", "how big?", "very"]
        assert [one.text for one in history.path(1)] == texts[: 1 if version == 1 else 4]
        if version == 2:
            assert [chat.title for chat in history.chats("see")] == ["Named"]


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
            assert history.facts(chat.number)["settings"] == "{}"
    with closing(History.open(path)) as history:
        history.set_fact(1, "settings", '{"top_k": 3}')
        history.add(1, "assistant", "they are big")
        assert history.facts(1)["settings"] == '{"top_k": 3}'
        assert history.facts(history.create("demo"))["settings"] == "{}"
        assert len(history.chats("big")) == 1


def test_two_programs_may_bring_it_to_the_present(path: Path) -> None:
    with closing(History.open(path)) as first, closing(History.open(path)) as second:
        second.set_fact(1, "settings", '{"seed": 1}')
        assert first.facts(1)["settings"] == '{"seed": 1}'
