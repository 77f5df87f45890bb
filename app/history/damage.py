"""How damage of the database shows, and the files that SQLite keeps beside it."""

import sqlite3

from app.history.schema import DamagedFileError

LOG = "-wal"
BESIDE = (LOG, "-shm", "-journal")
"""Suffixes of SQLite's own files beside the database."""

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def is_damage(error: BaseException) -> bool:
    """Whether an error of the sqlite3 module means that the file is damaged."""
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, DamagedFileError | UnicodeDecodeError) or code & 0xFF in _DAMAGE
