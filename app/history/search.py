"""What a user types into a search, as a condition on chats."""

import unicodedata

_MOST_WORDS = 50
_MOST_CHARACTERS = 1000
"""A pasted page would make a statement that SQLite refuses; its beginning will do."""

_IN_INDEX = """SELECT chat FROM messages JOIN words ON words.rowid = messages.number
    WHERE words MATCH ?"""
_IN_TEXT = "SELECT chat FROM messages WHERE messages.text LIKE ? ESCAPE '\\'"


def condition(query: str) -> tuple[str, list[str]]:
    """A condition that holds for chats with every word, the last may be cut; and its values.

    Each word may stand in the title or in any message; nothing in query is an operator.
    """
    words = query[:_MOST_CHARACTERS].replace("\0", " ").split()[:_MOST_WORDS]
    conditions: list[str] = []
    values: list[str] = []
    for place, word in enumerate(words):
        if _indexed(word):
            found, value = _IN_INDEX, _phrase(word, may_be_cut=place == len(words) - 1)
        else:
            found, value = _IN_TEXT, f"%{_literal(word)}%"
        conditions.append(f"(title_holds(CAST(title AS BLOB), ?) OR chats.number IN ({found}))")
        values += [word, value]
    return " AND ".join(conditions), values


def title_holds(title: bytes | None, word: str) -> bool:
    """Whether a title, in UTF-8, holds a word or a part of one, whatever its case and accents."""
    return _folded(word) in _folded((title or b"").decode(errors="replace"))


def _indexed(word: str) -> bool:
    """Whether the index has it as a word of its own.

    Signs and emoji are not in it, and scripts without capitals often do without spaces: there
    a whole sentence is one word of the index.
    """
    kinds = {unicodedata.category(one) for one in word}
    return "Lo" not in kinds and any(kind[0] in "LN" for kind in kinds)


def _folded(text: str) -> str:
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(one for one in parts if not unicodedata.combining(one))


def _phrase(word: str, may_be_cut: bool) -> str:
    quoted = word.replace('"', '""')
    return f'"{quoted}"' + "*" * may_be_cut


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
