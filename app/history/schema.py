"""Tables of the chat database, and the way to a newer layout."""

import sqlite3
import time

_PAUSE_SECONDS = 0.01

_TABLES = """
CREATE TABLE chats (
    number INTEGER PRIMARY KEY,
    title TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL,
    system TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    removed REAL
);
CREATE TABLE messages (
    number INTEGER PRIMARY KEY,
    chat INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    ending TEXT NOT NULL,
    created REAL NOT NULL
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
"""


_SETTINGS = """
ALTER TABLE chats ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';
"""
_STEPS = (_TABLES, _SETTINGS)
"""What leads from each layout to the next; the first begins with an empty file."""

VERSION = len(_STEPS)


class NewerSchemaError(Exception):
    """The file was written by a newer version."""


def prepare(connection: sqlite3.Connection, wait_seconds: float) -> None:
    """Bring the tables to the present layout; two programs may do so at once.

    Raises:
        NewerSchemaError: this version does not know the layout.
        sqlite3.Error: it is not a database, or cannot be written.
    """
    _write_ahead(connection, wait_seconds)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise NewerSchemaError
        for step in _STEPS[version:]:
            for statement in _statements(step):
                connection.execute(statement)
        if version < VERSION:
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # after some errors SQLite has already gone back
            connection.execute("ROLLBACK")
        raise


def _write_ahead(connection: sqlite3.Connection, wait_seconds: float) -> None:
    """Switch to a log written ahead; SQLite itself does not wait here for another program."""
    end = time.monotonic() + wait_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > end:
                raise
        time.sleep(_PAUSE_SECONDS)


def _statements(step: str) -> list[str]:
    """The statements one by one: executescript would end the transaction."""
    found: list[str] = []
    statement = ""
    for line in step.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            found.append(statement)
            statement = ""
    return found
