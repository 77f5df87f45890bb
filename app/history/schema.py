"""Schema of the chat database: tables, migrations, checks and the SQL of a search."""

import re
import sqlite3
import time
import unicodedata
from contextlib import closing, suppress
from pathlib import Path

from app.history.records import as_text, first_line, title_of

_MOST_WORDS = 50
MOST_CHARACTERS = 1000
"""Limits of a query: SQLite refuses longer statements."""

_IN_INDEX = """SELECT chat FROM messages WHERE number IN
    (SELECT rowid FROM words WHERE words MATCH ? UNION
    SELECT number FROM messages WHERE writer <> '' AND text LIKE ? ESCAPE '\\' UNION
    SELECT message FROM attachments WHERE number IN
    (SELECT rowid FROM attached_words WHERE attached_words MATCH ?))"""
_IN_TEXT = """SELECT chat FROM messages WHERE messages.text LIKE ? ESCAPE '\\' OR number IN
    (SELECT message FROM attachments
    WHERE kind <> 'image' AND attachments.text LIKE ? ESCAPE '\\')"""
IN_TITLE = """title_holds(CAST(title AS BLOB), (SELECT CAST(text AS BLOB) FROM messages
    WHERE number = chats.shown), ?)"""


def condition(query: str) -> tuple[str, list[str]]:
    """Condition for chats that contain every word, with its values; the last may be a prefix.

    Each word may occur in the title or in any message; nothing in query is an operator.
    """
    words = query[:MOST_CHARACTERS].replace("\0", " ").split()[:_MOST_WORDS]
    conditions: list[str] = []
    values: list[str] = []
    for place, word in enumerate(words):
        literal = re.sub(r"([%_\\])", r"\\\1", word)
        part = f"%{literal}%"
        if _indexed(word):
            quoted, is_prefix = word.replace('"', '""'), place == len(words) - 1
            phrase = f'"{quoted}"' + "*" * is_prefix
            select, found = _IN_INDEX, [phrase, part, phrase]
        else:
            select, found = _IN_TEXT, [part, part]
        conditions.append(f"(chats.number IN ({select}) OR {IN_TITLE})")
        values += [*found, word]
    return " AND ".join(conditions), values


def title_holds(name: bytes | str, question: bytes | None, words: str) -> int:
    """How much the title of a chat is what is searched: 2 all of it, 1 it holds all words, else 0.

    Case and accents are ignored. name, question: its name and its first question, in UTF-8.
    """
    title = _folded(as_text(name) or title_of(as_text(question)))
    wanted = [_folded(word) for word in words.split()]
    return 2 * (wanted == title.split()) or int(all(word in title for word in wanted))


def _indexed(word: str) -> bool:
    """Whether the full-text index would hold the word as a token.

    It omits symbols and emoji. Scripts without capitals often do without spaces, so that the index
    holds a whole sentence as one token.
    """
    kinds = {unicodedata.category(character) for character in word}
    return "Lo" not in kinds and any(kind[0] in "LN" for kind in kinds)


def _folded(text: str) -> str:
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part))


class _Folding(dict[int, int]):
    """Each character without case and accent, as one: a text stays as long as it is."""

    def __missing__(self, code: int) -> int:
        plain = unicodedata.normalize("NFKD", chr(code).casefold())
        self[code] = ord(plain[:1] or chr(code))
        return self[code]


_FOLDING = _Folding()


def matches(text: str, query: str) -> list[tuple[int, int]]:
    """Where a query stands in a text: as it is, or else each of its words."""
    text, words = text.translate(_FOLDING), query[:MOST_CHARACTERS].translate(_FOLDING).split()
    words = [re.escape(word) for word in words]
    for wanted in (r"\s+".join(words), "|".join(words)):
        if wanted and (found := [match.span() for match in re.finditer(wanted, text)]):
            return found
    return []


_PAUSE_SECONDS = 0.01

UNNAMED = """UPDATE chats SET title = '' WHERE title = (SELECT title_of(CAST(text AS BLOB))
    FROM messages WHERE number = chats.shown AND role = 'user')"""
"""Leaves a title empty that is the first question shown: it then changes with that question."""

_FOLDER = Path(__file__).with_name("migrations")
_STEPS = tuple(file.read_text(encoding="utf-8") for file in sorted(_FOLDER.glob("*.sql")))
"""Migrations from each schema version to the next, from an empty file on."""

VERSION = len(_STEPS)


_PROBES = (
    "SELECT number, title, model, system, created, updated, removed, settings, shown, folder"
    " FROM chats LIMIT 1",
    "SELECT number, chat, role, text, ending, created, parent, shown, lossy, writer, model"
    " FROM messages LIMIT 1",
    "SELECT rowid FROM words LIMIT 1",
    "SELECT number, message, kind, name, text FROM attachments LIMIT 1",
    "SELECT rowid FROM attached_words LIMIT 1",
    "SELECT number, chat, text, attachments FROM queue LIMIT 1",
    "SELECT name, number FROM retired LIMIT 1",
    "SELECT message, tokens FROM tokens LIMIT 1",
)
"""Queries that a usable file must answer."""

_MOST_CHECKED_BYTES = 32 << 20
"""Largest file that is checked when opened, at 1 ms per megabyte."""

_WITHOUT_CHAT = "SELECT chat FROM messages WHERE chat NOT IN (SELECT number FROM chats) LIMIT 1"


class NewerSchemaError(Exception):
    def __init__(self) -> None:
        super().__init__("a newer version of specchat wrote it")


class DamagedFileError(Exception):
    """The file is damaged in a way that SQLite does not report by itself."""


class ForeignFileError(Exception):
    def __init__(self) -> None:
        super().__init__("it is a database of another program")


def connected(path: Path, wait_seconds: float) -> sqlite3.Connection:
    """Open the file and migrate it to the present schema.

    Raises:
        ForeignFileError: it is another program's.
        NewerSchemaError: a newer version wrote it.
        DamagedFileError, sqlite3.Error, UnicodeDecodeError: it is damaged, or cannot be written.
    """
    connection = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None)
    try:
        connection.text_factory = as_text
        prepare(connection, wait_seconds)
        for probe in _PROBES:
            connection.execute(probe).fetchall()
        if path.stat().st_size <= _MOST_CHECKED_BYTES:
            _check(connection)
    except BaseException:
        with suppress(sqlite3.Error):
            connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    """Check for damage that queries do not report, such as missing index entries."""
    for table in ("messages", "chats", "attachments", "queue", "retired"):
        ((result, *_), *_) = connection.execute(f"PRAGMA integrity_check({table})").fetchall()
        if result != "ok":
            raise DamagedFileError(f"the table {table} is malformed")
    if connection.execute(_WITHOUT_CHAT).fetchall():
        raise DamagedFileError("messages belong to no chat")


def is_odd(error: BaseException | None) -> bool:
    """Whether SQLite could read the file, but its tables do not fit our statements."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR


def prepare(connection: sqlite3.Connection, wait_seconds: float) -> None:
    """Migrate the tables to the present schema; two programs may do so at once.

    Raises:
        ForeignFileError: it is another program's.
        NewerSchemaError: a newer version wrote it.
        sqlite3.Error: it is not a database, or cannot be written.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if tables and tables.isdisjoint({"chats", "messages"}) and _version(connection) == 0:
        raise ForeignFileError
    _add_functions(connection)
    _write_ahead(connection, wait_seconds)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # macOS: past the drive's own cache
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)
        if version > VERSION and _layout(connection) != _present_layout():
            raise NewerSchemaError
        if not 0 <= version <= VERSION:
            raise DamagedFileError("its tables are not those of its schema version")
        for step in _STEPS[version:]:
            for statement in _statements(step):
                connection.execute(statement)
        if version < VERSION:
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # after some errors SQLite has already rolled back
            connection.execute("ROLLBACK")
        raise


def _add_functions(connection: sqlite3.Connection) -> None:
    connection.create_function("title_holds", 3, title_holds, deterministic=True)
    connection.create_function("title_of", 1, _title_of, deterministic=True)


def _title_of(text: bytes | None) -> str:
    return first_line(as_text(text))


def _layout(connection: sqlite3.Connection) -> set[str]:
    return {str(sql) for (sql,) in connection.execute("SELECT sql FROM sqlite_schema")}


def _present_layout() -> set[str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        _add_functions(connection)
        for step in _STEPS:
            connection.executescript(step)
        return _layout(connection)


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _write_ahead(connection: sqlite3.Connection, wait_seconds: float) -> None:
    """Switch to a write-ahead log; SQLite itself does not wait here for another program."""
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
    """Split a migration into statements: executescript would end the transaction."""
    statements: list[str] = []
    statement = ""
    for line in step.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return statements


LOG = "-wal"
BESIDE = (LOG, "-shm", "-journal")
"""Suffixes of SQLite's own files beside the database."""

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def is_damage(error: BaseException) -> bool:
    """Whether an error of the sqlite3 module means that the file is damaged."""
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, DamagedFileError | UnicodeDecodeError) or code & 0xFF in _DAMAGE
