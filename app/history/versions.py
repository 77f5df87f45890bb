"""What tells of a chat, without its text, whether it is as it was."""

import hashlib
from dataclasses import dataclass
from typing import Self

from app.history.chat import as_seconds

VERSIONS = """
    SELECT chats.number, updated, chats.created, count(*), max(messages.number),
        max(messages.created), total(length(text))
    FROM chats JOIN messages ON chat = chats.number
    WHERE removed IS NULL GROUP BY chats.number ORDER BY updated DESC
"""
_STAMP_BYTES = 16


@dataclass(frozen=True, slots=True)
class Version:
    """A state of a chat. updated: in seconds since 1970. stamp: 16 bytes."""

    number: int
    updated: float
    stamp: bytes

    @classmethod
    def of(cls, number: int, updated: float, *facts: float) -> Self:
        """Of a row of VERSIONS."""
        stamp = hashlib.sha256(repr((number, updated, *facts)).encode()).digest()
        return cls(number, as_seconds(updated), stamp[:_STAMP_BYTES])
