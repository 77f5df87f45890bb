"""Records of the history: chats, their messages and their versions."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from backends.base import SpecchatError

_TITLE_LENGTH = 60
_YEAR_9999 = 253_370_764_800.0
"""In seconds since 1970; calendars end there."""

_STAMP_BYTES = 16


class HistoryError(SpecchatError):
    """Chats that cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation. created and updated are in seconds since 1970."""

    number: int
    title: str
    model: str
    system: str
    created: float
    updated: float
    messages: int

    @classmethod
    def of(cls, row: Sequence[Any]) -> Self:
        """Chat from its columns, which may be damaged."""
        number, title, model, system, created, updated, messages = row
        times = as_seconds(created), as_seconds(updated)
        return cls(number, as_text(title), as_text(model), as_text(system), *times, messages)


@dataclass(frozen=True, slots=True)
class Saved:
    """One message as it was last saved; an answer cut short has no ending."""

    number: int
    role: str
    text: str
    ending: str
    created: float

    @classmethod
    def of(cls, row: Sequence[Any]) -> Self:
        """Message from its columns, which may be damaged."""
        number, role, text, ending, created = row
        return cls(number, as_text(role), as_text(text), as_text(ending), as_seconds(created))


@dataclass(frozen=True, slots=True)
class Version:
    """Fingerprint that changes when a chat changes: 16 bytes, made without its text.

    updated: seconds since 1970.
    """

    number: int
    updated: float
    stamp: bytes

    @classmethod
    def of(cls, number: int, updated: float, *facts: float) -> Self:
        """Version from its columns."""
        stamp = hashlib.sha256(repr((number, updated, *facts)).encode()).digest()
        return cls(number, as_seconds(updated), stamp[:_STAMP_BYTES])


def as_text(value: object) -> str:
    """Text of a column; undecodable bytes become substitute characters."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return "" if value is None else str(value)


def as_seconds(value: object) -> float:
    """Seconds since 1970 from a column; 0 if it holds none."""
    if isinstance(value, int | float) and 0.0 <= value < _YEAR_9999:
        return float(value)
    return 0.0


def title_of(text: str) -> str:
    """Title of a chat, from its first question."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _TITLE_LENGTH else f"{line[: _TITLE_LENGTH - 1]}…"
