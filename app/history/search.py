"""Translates a search query into an SQL condition on chats."""

import unicodedata

from app.history.chat import as_text, title_of

_MOST_WORDS = 50
_MOST_CHARACTERS = 1000
"""Limits of a query: SQLite refuses longer statements."""

_IN_INDEX = """SELECT chat FROM messages WHERE number IN
    (SELECT rowid FROM words WHERE words MATCH ? UNION
    SELECT number FROM messages WHERE writer <> '' AND text LIKE ? ESCAPE '\\' UNION
    SELECT message FROM attachments WHERE number IN
    (SELECT rowid FROM attached_words WHERE attached_words MATCH ?))"""
_IN_TEXT = """SELECT chat FROM messages WHERE messages.text LIKE ? ESCAPE '\\' OR number IN
    (SELECT message FROM attachments WHERE attachments.text LIKE ? ESCAPE '\\')"""
_IN_TITLE = """title_holds(CAST(title AS BLOB), (SELECT CAST(text AS BLOB) FROM messages
    WHERE number = chats.shown), ?)"""


def condition(query: str) -> tuple[str, list[str]]:
    """Condition for chats that contain every word, with its values; the last may be a prefix.

    Each word may occur in the title or in any message; nothing in query is an operator.
    """
    words = query[:_MOST_CHARACTERS].replace("\0", " ").split()[:_MOST_WORDS]
    conditions: list[str] = []
    values: list[str] = []
    for place, word in enumerate(words):
        part = f"%{_literal(word)}%"
        if _indexed(word):
            phrase = _phrase(word, is_prefix=place == len(words) - 1)
            select, found = _IN_INDEX, [phrase, part, phrase]
        else:
            select, found = _IN_TEXT, [part, part]
        conditions.append(f"(chats.number IN ({select}) OR {_IN_TITLE})")
        values += [*found, word]
    return " AND ".join(conditions), values


def title_holds(name: bytes | None, question: bytes | None, word: str) -> bool:
    """Whether the title of a chat contains a text, ignoring case and accents.

    name, question: its name and its first question, in UTF-8.
    """
    title = as_text(name) or title_of(as_text(question))
    return _folded(word) in _folded(title)


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


def _phrase(word: str, is_prefix: bool) -> str:
    quoted = word.replace('"', '""')
    return f'"{quoted}"' + "*" * is_prefix


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
