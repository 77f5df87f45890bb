"""Fuzzes the chat database: opened, read, searched and written to, as by the app."""

import json
import random as chance
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

from app.chat.attachments import Attachment, AttachmentKind
from app.history import History
from app.history.export import as_json, as_markdown
from scripts.fuzzing.damage import damaged
from scripts.fuzzing.kind import READ, REBUILT

_FILE = Attachment(AttachmentKind.FILE, "a.md", "walrus")
_ODD = (
    "x'ff00fe'", "CAST(x'ff41' AS TEXT)", "NULL", "''", "1e308", "-1e308", "9e999", "-1",
    "9223372036854775807", "'text'", "zeroblob(100000)", "CAST(x'610062' AS TEXT)",
)  # fmt: skip
_COLUMNS = {
    "chats": (
        "number",
        "title",
        "model",
        "system",
        "created",
        "updated",
        "removed",
        "settings",
        "shown",
    ),
    "messages": (
        "number",
        "chat",
        "role",
        "text",
        "ending",
        "created",
        "parent",
        "shown",
        "lossy",
        "writer",
    ),
    "attachments": ("number", "message", "kind", "name", "text"),
    "queue": ("number", "chat", "text", "attachments"),
}
_STATEMENTS = (
    "DROP TABLE words", "DROP INDEX messages_by_chat", "DROP TABLE messages", "DROP TABLE chats",
    "DELETE FROM chats WHERE number = 1", "DELETE FROM words_data", "DELETE FROM sqlite_schema",
    "PRAGMA user_version = 7", "PRAGMA user_version = 0", "PRAGMA user_version = -9",
    "UPDATE sqlite_schema SET sql = CAST(x'ff' AS TEXT) WHERE name = 'chats'",
    "UPDATE sqlite_schema SET sql = 'CREATE TABLE messages (a)' WHERE name = 'messages'",
    "UPDATE sqlite_schema SET name = CAST(x'ff' AS TEXT) WHERE name = 'words'",
    "UPDATE sqlite_schema SET rootpage = 2 WHERE name = 'messages'",
    "CREATE TRIGGER more AFTER INSERT ON chats BEGIN INSERT INTO chats (model, system, created,"
    " updated) VALUES (1, 2, 3, 4); END",
)  # fmt: skip


class ChatDatabaseKind:
    """Half of the files have damaged bytes, half have foreign rows and tables."""

    name = "chat-database"
    file_name = "chats.sqlite3"

    def samples(self, folder: Path) -> Sequence[bytes]:
        found: list[bytes] = []
        for seed in range(2):
            path, random = folder / f"{seed}.sqlite3", chance.Random(seed)
            with closing(History.open(path)) as history:
                for _ in range(6):
                    chat = history.create("demo", "be brief", '{"top_k": 3}')
                    for _ in range(random.randrange(20)):
                        words = random.choices(("whale", "ship", "sea"), k=random.randrange(1, 900))
                        role, text = random.choice(("user", "assistant")), " ".join(words)
                        parent = random.choice((0, None))
                        history.add(chat, role, text, parent=parent, attachments=[_FILE])
                        history.enqueue(chat, text, [_FILE])
                history.remove(2)
            found.append(path.read_bytes())
        return found

    def damage(self, good: bytes, random: Random) -> bytes:
        if random.random() < 0.5:
            return damaged(good, random)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            connection.deserialize(_not_logged(good))
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("PRAGMA ignore_check_constraints = ON")
            for _ in range(random.choice((1, 2, 4))):
                try:
                    connection.execute(_statement(random))
                except (sqlite3.Error, UnicodeDecodeError):
                    continue
            return connection.serialize()

    def read(self, path: Path) -> str:
        with closing(History.open(path)) as history:
            news = history.news()
            for chat in history.chats():
                messages = history.path(chat.number)
                history.queue(chat.number)
                history.facts(chat.number)
                as_markdown(chat, messages).encode()
                json.dumps(as_json(chat, messages))
            history.versions()
            history.questions()
            history.chats("whale sh")
            history.removed_last()
            number = history.add(history.create("demo"), "user", "of the whale")
            history.update(number, "of the whale and the ship")
            history.chats("of the ship")
            news += history.news()
        return REBUILT if news else READ


def _not_logged(good: bytes) -> bytes:
    """A database in memory has no log."""
    return good[:18] + b"\1\1" + good[20:]


def _statement(random: Random) -> str:
    if random.random() < 0.4:
        return random.choice(_STATEMENTS)
    table = random.choice(sorted(_COLUMNS))
    column = random.choice(_COLUMNS[table])
    where = random.choice(("", f" WHERE number = {random.randrange(1, 20)}"))
    return f"UPDATE OR IGNORE {table} SET {column} = {random.choice(_ODD)}{where}"
