"""All chats, in one SQLite file, which several programs may use at once."""

import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from app.chat.attachments import Attachment, as_json, from_json
from app.history.database import Database, Value
from app.history.records import (
    Chat,
    HistoryError,
    Preview,
    Queued,
    Saved,
    Version,
    as_number,
    as_seconds,
    as_text,
    linked,
    shown_path,
)
from app.history.schema import IN_TITLE, MOST_CHARACTERS, condition, matches
from app.paths import Paths, entries

_KEPT_SECONDS = 86_400.0
"""How long a removed chat can be restored."""

_PREVIEW_CHARACTERS = 1000

_COLUMNS = """
    chats.number, title,
    iif(title = '', coalesce(
        (SELECT text FROM messages WHERE number = chats.shown AND role = 'user'),
        (SELECT text FROM queue WHERE chat = chats.number ORDER BY number LIMIT 1)), ''),
    model, system, created, updated,
    (SELECT count(*) FROM messages WHERE chat = chats.number),
    (SELECT count(*) FROM messages WHERE chat = chats.number AND shown = 0),
    (SELECT iif(role = 'assistant' AND ending = '', writer, NULL) FROM messages
        WHERE chat = chats.number ORDER BY number DESC LIMIT 1)
"""
_HAS_QUESTION = """(EXISTS (SELECT 1 FROM messages WHERE chat = chats.number)
    OR EXISTS (SELECT 1 FROM queue WHERE chat = chats.number))"""

_FACTS = ("title", "model", "system", "settings", "folder")

_MESSAGE = "number, role, text, ending, created, parent, shown, lossy, writer, model"

_VERSIONS = """
    SELECT chats.number, updated, chats.created, count(*), max(messages.number),
        max(messages.created), total(length(text)), chats.shown, total(messages.shown)
    FROM chats JOIN messages ON chat = chats.number
    WHERE removed IS NULL GROUP BY chats.number ORDER BY updated DESC
"""
_NEW_NUMBER = """1 + max((SELECT coalesce(max(number), 0) FROM {table}),
    (SELECT coalesce(max(number), 0) FROM retired WHERE name = '{table}'))"""

_CREATE = f"""INSERT INTO chats (number, title, model, system, settings, folder, created, updated)
    SELECT {_NEW_NUMBER.format(table="chats")}, ?, ?, ?, ?, ?, ?, ?"""

_ADD = f"""INSERT INTO messages
    (number, chat, role, text, ending, created, parent, lossy, writer, model)
    SELECT {_NEW_NUMBER.format(table="messages")}, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9
    WHERE EXISTS (SELECT 1 FROM chats WHERE number = ?1)
    AND (?6 = 0 OR EXISTS (SELECT 1 FROM messages WHERE number = ?6 AND chat = ?1))"""

_ATTACH = "INSERT INTO attachments (message, kind, name, text) VALUES (?, ?, ?, ?)"

_ENQUEUE = "INSERT INTO queue (chat, text, attachments) VALUES (?, ?, ?)"

_SHOW = """UPDATE {table} SET shown = ?1 WHERE number = ?2 AND shown IS NOT ?1
    AND (?1 = 0 OR EXISTS (SELECT 1 FROM messages WHERE number = ?1 AND chat = ?3))"""

_UPDATE = """UPDATE messages SET text = ?1, ending = ?2, lossy = ?3, writer = ?4, model = ?5
    WHERE number = ?6
    AND (text = '' OR CAST(text AS BLOB) = substr(CAST(?1 AS BLOB), 1, length(CAST(text AS BLOB))))
    """

_KEEP_TOKENS = """INSERT OR REPLACE INTO tokens
    SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM messages WHERE number = ?1)"""

_WITHDRAW = """DELETE FROM messages WHERE number = ?1 AND chat = ?2
    AND NOT EXISTS (SELECT 1 FROM messages WHERE chat = ?2 AND parent = ?1)"""

_LAST_SHOWN = """
    WITH RECURSIVE path (number) AS (
        SELECT shown FROM chats WHERE number = ?
        UNION SELECT messages.shown FROM messages JOIN path ON messages.number = path.number
    ) SELECT max(number) FROM path
"""


class History(Database):
    """All chats. One thread at a time may use it; each method that writes is a transaction.

    has_purged: whether chats were deleted for good since the file was opened.
    """

    has_purged = False

    @classmethod
    def open(cls, path: Path, *, repairs: bool = True) -> Self:
        """Open or create the file; a damaged one is rebuilt from its readable rows.

        repairs: False leaves a damaged file as it is, which is then an error.

        Raises:
            HistoryError: the file cannot be used.
        """
        history = cls(path.absolute(), repairs=repairs)
        history.open_file()
        with suppress(HistoryError):  # another program may be writing; the next start purges
            history.purge()
        return history

    # Chats

    def create(
        self, model: str, system: str = "", settings: str = "{}", title: str = "", folder: str = ""
    ) -> int:
        """Create a chat and return its number; it is listed once it has a question.

        settings: those of this chat, a JSON object. title: empty for the first question shown.
        """
        now = time.time()
        row = (title, model, system, settings, folder, now, now)
        return self.run(_CREATE, row).lastrowid or 0

    def add_whole(
        self,
        facts: Mapping[str, str],
        times: tuple[float, float],
        messages: Sequence[Saved],
        shown: int,
        tokens: Mapping[int, Sequence[int]],
        queue: Sequence[Queued],
    ) -> int:
        """Add a chat with all versions of all messages, which get other numbers; returns its own.

        times: when it was created and changed. shown: the version of the first question shown.
        tokens: of answers, by their number in messages.
        """

        def write() -> int:
            row = (*(facts.get(name, "") for name in _FACTS), *times)
            chat = self.execute(_CREATE, row)[0].lastrowid or 0
            numbers = {0: 0}
            for one in linked(messages):
                after, texts = numbers[one.parent], (one.role, one.text, one.ending)
                about = (one.created, after, one.lossy, "", one.model)
                cursor, _ = self.execute(_ADD, (chat, *texts, *about))
                number = numbers[one.number] = cursor.lastrowid or 0
                self._attach(number, one.attachments)
                if tokens.get(one.number):
                    self.execute(_KEEP_TOKENS, (number, _packed(tokens[one.number])))
            for one in messages:
                self._show(chat, numbers[one.number], numbers.get(one.shown, 0))
            self._show(chat, 0, numbers.get(shown, 0))
            for question in queue:
                self.execute(_ENQUEUE, (chat, question.text, as_json(question.attachments)))
            return chat

        return self.together(write)

    def used_models(self) -> dict[str, float]:
        """When each model's chats changed last, in seconds since 1970."""
        sql = "SELECT model, MAX(updated) FROM chats GROUP BY model"
        return {as_text(model): as_seconds(time) for model, time in self.rows(sql, ())}

    def marks(self) -> list[str]:
        """Marks of all chats that were not removed, as Chat.mark."""
        sql = "SELECT number, created FROM chats WHERE removed IS NULL"
        return [f"{number} {as_seconds(created)}" for number, created in self.rows(sql, ())]

    def chats(self, query: str = "", limit: int = 500) -> list[Chat]:
        """Chats that contain every word of query; the last may be a prefix.

        Those whose title is the query come first, then those whose title has the words, and among
        equals the latest.
        """
        where, values = condition(query)
        title = f"{IN_TITLE} DESC, " if where else ""
        sql = f"""SELECT {_COLUMNS} FROM chats
            WHERE removed IS NULL AND {_HAS_QUESTION} {where and f"AND {where}"}
            ORDER BY {title}updated DESC, chats.number DESC LIMIT ?"""
        wanted = [query[:MOST_CHARACTERS]] if where else []
        return [Chat.of(row) for row in self.rows(sql, [*values, *wanted, limit])]

    def chat(self, number: int) -> Chat:
        """Return a chat by its number.

        Raises:
            HistoryError: there is no such chat.
        """
        sql = f"SELECT {_COLUMNS} FROM chats WHERE chats.number = ? AND removed IS NULL"
        rows = self.rows(sql, (number,))
        if not rows:
            raise HistoryError(f"no chat {number}", "", "specchat chats list lists all.")
        return Chat.of(rows[0])

    def facts(self, chat: int) -> dict[str, str]:
        """Name (title), model, system prompt, settings and folder of a chat; empty if it is gone.

        title: empty if the first question shown names the chat. settings: a JSON object.
        """
        sql = f"SELECT {', '.join(_FACTS)} FROM chats WHERE number = ?"
        rows = self.rows(sql, (chat,))
        return dict(zip(_FACTS, map(as_text, rows[0]), strict=True)) if rows else {}

    def has_folder(self, chat: int) -> bool:
        """Whether there is such a chat, which was not removed, and it has a folder."""
        sql = "SELECT 1 FROM chats WHERE number = ? AND removed IS NULL AND folder <> ''"
        return bool(self.rows(sql, (chat,)))

    def preview(self, chat: int, query: str = "") -> Preview:
        """The last question and its answer, or where a query stands; what is shown comes first."""
        question = answer = ""
        path = self.path(chat)
        for message in path:
            if message.role == "user":
                question, answer = message.text, ""
            elif message.role == "assistant":
                answer = message.text
        last = question[:_PREVIEW_CHARACTERS], answer[:_PREVIEW_CHARACTERS]
        for message in (*path, *self.messages(chat)) if query.strip() else ():
            for text in (message.text, *(one.text for one in message.attachments)):
                if found := matches(text, query):
                    start, end = found[0]
                    begin = text.rfind("\n", 0, start) + 1
                    line = text[begin:].partition("\n")[0]
                    return Preview(*last, line, (start - begin, end - begin))
        return Preview(*last)

    def versions(self) -> list[Version]:
        """Present version of each chat, latest first."""
        return [Version.of(*row) for row in self.rows(_VERSIONS, ())]

    def rename(self, chat: int, title: str) -> None:
        """Change the title of a chat; an empty one stands for its first question shown."""
        self.set_fact(chat, "title", title)

    def set_fact(self, chat: int, name: str, value: str) -> None:
        assert name in _FACTS
        self.run(f"UPDATE chats SET {name} = ? WHERE number = ?", (value, chat))

    def remove(self, chat: int) -> None:
        self.run("UPDATE chats SET removed = ? WHERE number = ?", (time.time(), chat))

    def restore(self, chat: int) -> None:
        self.run("UPDATE chats SET removed = NULL WHERE number = ?", (chat,))

    def removed_last(self) -> int | None:
        sql = """SELECT number FROM chats WHERE removed >= ? ORDER BY removed DESC LIMIT 1"""
        rows = self.rows(sql, (time.time() - _KEPT_SECONDS,))
        return int(rows[0][0]) if rows else None

    def purge(self) -> None:
        sql = "DELETE FROM chats WHERE removed < ?"
        deleted = self.run(sql, (time.time() - _KEPT_SECONDS,)).rowcount
        self.has_purged = self.has_purged or deleted > 0

    # Messages

    def messages(self, chat: int) -> list[Saved]:
        """All messages of a chat, of all versions, oldest first."""
        attachments: dict[int, tuple[Attachment, ...]] = {}
        sql = """SELECT message, kind, name, attachments.text
            FROM messages CROSS JOIN attachments ON message = messages.number
            WHERE chat = ? ORDER BY attachments.number"""
        for message, *columns in self.rows(sql, (chat,)):
            attachment = Attachment.of(*map(as_text, columns))
            attachments[message] = (*attachments.get(message, ()), attachment)
        rows = self.rows(f"SELECT {_MESSAGE} FROM messages WHERE chat = ? ORDER BY 1", (chat,))
        return [Saved.of(row, attachments.get(row[0], ())) for row in rows]

    def path(self, chat: int) -> list[Saved]:
        """The messages of a chat that are shown, the first question first."""
        return shown_path(self.messages(chat), self.first_shown(chat))

    def first_shown(self, chat: int) -> int:
        """The version of the first question that is shown, 0 if there is none."""
        rows = self.rows("SELECT shown FROM chats WHERE number = ?", (chat,))
        return as_number(rows[0][0]) if rows else 0

    def questions(self, limit: int = 100) -> list[tuple[str, tuple[Attachment, ...]]]:
        """Last questions of all chats with their pastes, oldest first."""
        sql = """SELECT messages.number, text FROM messages JOIN chats ON chat = chats.number
            WHERE role = 'user' AND removed IS NULL ORDER BY messages.number DESC LIMIT ?"""
        pasted = """SELECT kind, name, text FROM attachments
            WHERE message = ? AND kind = 'paste' ORDER BY number"""
        return [
            (
                as_text(text),
                tuple(Attachment.of(*map(as_text, row)) for row in self.rows(pasted, (number,))),
            )
            for number, text in reversed(self.rows(sql, (limit,)))
        ]

    def add(
        self,
        chat: int,
        role: str,
        text: str,
        ending: str = "",
        *,
        parent: int | None = None,
        attachments: Sequence[Attachment] = (),
        lossy: str = "",
        writer: str = "",
        model: str = "",
    ) -> int:
        """Add a message and show it; a chat that another window removed meanwhile is restored.

        parent: the message that it follows, 0 for a first question; None: the last one shown.

        Returns:
            Its number; 0 if the chat or the parent no longer exists.
        """

        def write() -> int:
            after = self._found(_LAST_SHOWN, chat) if parent is None else parent
            now = time.time()
            row = (chat, role, text, ending, now, after, lossy, writer, model)
            cursor, _ = self.execute(_ADD, row)
            if cursor.rowcount == 0:
                return 0
            number = cursor.lastrowid or 0
            self._attach(number, attachments)
            self._show(chat, after, number)
            changed = "UPDATE chats SET removed = NULL, updated = ? WHERE number = ?"
            self.execute(changed, (now, chat))
            return number

        return self.together(write)

    def update(
        self,
        message: int,
        text: str,
        ending: str = "",
        *,
        lossy: str = "",
        writer: str = "",
        model: str = "",
    ) -> bool:
        """Extend the text of a message. writer: of an answer that grows.

        Returns:
            Whether it still exists and the new text begins with the saved one: what was said is
            never replaced.
        """
        row = (text, ending, lossy, writer, model, message)
        run = self.run if ending or not writer else self.run_unsynced
        return run(_UPDATE, row).rowcount > 0

    def keep_tokens(self, message: int, tokens: Sequence[int]) -> None:
        self.run(_KEEP_TOKENS, (message, _packed(tokens)))

    def tokens(self, message: int) -> tuple[int, ...]:
        rows = self.rows("SELECT tokens FROM tokens WHERE message = ?", (message,))
        data = rows[0][0] if rows else b""
        is_whole = isinstance(data, bytes) and len(data) % 4 == 0
        return struct.unpack(f"<{len(data) // 4}I", data) if is_whole else ()

    def show(self, chat: int, parent: int, message: int) -> None:
        """Show a message below another; parent: 0 for versions of the first question."""
        self.together(lambda: self._show(chat, parent, message))

    def withdraw(self, chat: int, message: int) -> None:
        """Delete a message that nothing follows; a chat without any question goes with it."""

        def write() -> None:
            parent = self._found("SELECT parent FROM messages WHERE number = ?", message)
            shown = f"SELECT shown FROM {'messages' if parent else 'chats'} WHERE number = ?"
            was_shown = message == self._found(shown, parent or chat)
            if self.execute(_WITHDRAW, (message, chat))[0].rowcount and was_shown:
                siblings = "SELECT max(number) FROM messages WHERE chat = ? AND parent = ?"
                self._show(chat, parent, self._found(siblings, chat, parent))
            without = f"DELETE FROM chats WHERE number = ? AND NOT {_HAS_QUESTION}"
            self.execute(without, (chat,))

        self.together(write)

    # The queue

    def enqueue(self, chat: int, text: str, attachments: Sequence[Attachment] = ()) -> int:
        return self.run(_ENQUEUE, (chat, text, as_json(attachments))).lastrowid or 0

    def queue(self, chat: int) -> list[Queued]:
        """Questions that wait to be sent in a chat, the first one first."""
        sql = "SELECT number, text, attachments FROM queue WHERE chat = ? ORDER BY number"
        return [
            Queued(as_text(text), from_json(as_text(attachments)), number)
            for number, text, attachments in self.rows(sql, (chat,))
        ]

    def unqueue(self, question: int) -> None:
        self.run("DELETE FROM queue WHERE number = ?", (question,))

    # Parts of transactions

    def _show(self, chat: int, parent: int, message: int) -> None:
        row = (message, parent or chat, chat)
        self.execute(_SHOW.format(table="messages" if parent else "chats"), row)

    def _attach(self, message: int, attachments: Sequence[Attachment]) -> None:
        for one in attachments:
            self.execute(_ATTACH, (message, *one.stored.values()))

    def _found(self, sql: str, *values: Value) -> int:
        """The number that a query of one row and column finds, 0 if it finds none."""
        _, rows = self.execute(sql, values)
        return as_number(rows[0][0]) if rows else 0


def _packed(tokens: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(tokens)}I", *tokens)


# Opening and removing chats together with the data derived from them.
#
# What knows that data is imported when some is to be removed, which is seldom.


def open_history(paths: Paths, *, repairs: bool = True) -> History:
    """Open the database; if it deleted removed chats for good, saved prompt caches go too.

    repairs: whether a damaged database is rebuilt; another program that has it open then loses it.
    A cache holds the tokens of a conversation without naming the chat. Indexes of chats that are
    gone, or have no folder any more, go as well.
    """
    history = History.open(paths.history, repairs=repairs)
    if history.has_purged:
        from app.prompt_cache.saved_states import SavedStates

        SavedStates(paths.saved_states).clear()
    with suppress(HistoryError, OSError):
        for entry in entries(paths.indexes):
            number = Path(entry.name).stem
            if not (number.isdecimal() and history.has_folder(int(number))):
                Path(entry.path).unlink(missing_ok=True)
    return history


def has_chats(paths: Paths) -> bool:
    """Whether there is a database, or what keeps it from being seen, which opening it tells."""
    try:
        paths.history.stat()
    except FileNotFoundError:
        return paths.data.is_file()  # on Windows; elsewhere that is another error
    except OSError:
        return True
    return True


def index_of(paths: Paths, chat: int) -> Path:
    return paths.indexes / f"{chat}.sqlite3"


def remove_chat(history: History, number: int, paths: Paths) -> None:
    """Remove a chat: from the indexes at once, from the database after a day."""
    from app.documents.library import remove_index
    from decoding.drafters.retrieval.corpus import forget

    history.remove(number)
    forget(paths.retrieval, number)
    remove_index(index_of(paths, number))
