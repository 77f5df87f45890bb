"""Records of the history: chats, their messages and their versions."""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

from app.chat.attachments import Attachment
from backends.base import SpecchatError

_START_TOLERANCE_SECONDS = 2.0
"""The system clock may be set between two looks at when a process started."""


@cache
def own_writer() -> str:
    """This process, as stored beside an answer in progress: its id and when it started."""
    import psutil

    process = os.getpid()
    return f"{process} {psutil.Process(process).create_time():.2f}"


def is_running(writer: str) -> bool:
    """Whether a process still runs; a later one with the same id is another."""
    import psutil

    try:
        number, started = writer.split()
        process = psutil.Process(int(number))
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return abs(process.create_time() - float(started)) < _START_TOLERANCE_SECONDS
    except (psutil.NoSuchProcess, OverflowError, ValueError):
        return False
    except psutil.Error:
        return True


_MENTION = re.compile(r"(?<!\S)@(?=\S)")
_OUTPUT = re.compile(r"\[\$ (.+?): [\d,]+ (?:lines|characters)(?:, \d+)?\]")
"""A placeholder of what a command wrote."""
_TITLE_LENGTH = 60
_YEAR_9999 = 253_370_764_800.0
"""In seconds since 1970; calendars end there."""

_STAMP_BYTES = 16


class HistoryError(SpecchatError):
    """Chats that cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation. created, updated: in seconds since 1970."""

    number: int
    title: str
    """As the user named it, else the first question shown."""
    model: str
    system: str
    created: float
    updated: float
    messages: int
    """Messages of all versions."""
    versions: int = 1
    """Different ways through the chat: 1 if no message has several versions."""
    is_interrupted: bool = False
    """Whether its last message is an answer whose app was killed."""

    @property
    def mark(self) -> str:
        """What tells it from all others, also from one that has its number later."""
        return f"{self.number} {self.created}"

    @classmethod
    def of(cls, row: Sequence[Any]) -> Self:
        number, name, question, model, system, created, updated, messages, versions, writer = row
        title = as_text(name) or title_of(as_text(question))
        times = as_seconds(created), as_seconds(updated)
        is_interrupted = writer is not None and not is_running(as_text(writer))
        about = number, title, as_text(model), as_text(system), *times
        return cls(*about, messages, max(versions, 1), is_interrupted)


@dataclass(frozen=True, slots=True)
class Saved:
    """One message as it was last saved; an answer cut short has no ending."""

    number: int
    role: str
    text: str
    ending: str
    created: float
    parent: int = 0
    """The message that it follows; 0: none."""
    shown: int = 0
    """Which of the messages that follow it was shown last; 0: none."""
    lossy: str = ""
    """Lossy rule of an answer without an ending."""
    writer: str = ""
    """The process that writes an answer without an ending."""
    model: str = ""
    """Name of the model that wrote an answer, if it is known."""
    attachments: tuple[Attachment, ...] = ()

    @classmethod
    def of(cls, row: Sequence[Any], attachments: tuple[Attachment, ...] = ()) -> Self:
        number, role, text, ending, created, parent, shown, lossy, writer, model = row
        texts = as_text(role), as_text(text), as_text(ending)
        links = as_number(parent), as_number(shown)
        names = as_text(lossy), as_text(writer), as_text(model)
        return cls(number, *texts, as_seconds(created), *links, *names, attachments)


@dataclass(frozen=True, slots=True)
class Queued:
    """A question to be sent once those before it are answered. number: None if it is not saved."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    question: str
    answer: str
    found: str = ""
    """The first line that holds what is searched."""
    place: tuple[int, int] = (0, 0)
    """Where in that line it stands."""


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
        stamp = hashlib.sha256(repr((number, updated, *facts)).encode()).digest()
        return cls(number, as_seconds(updated), stamp[:_STAMP_BYTES])


def as_text(value: object) -> str:
    """Text of a column; undecodable bytes become substitute characters."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return "" if value is None else str(value)


def as_number(value: object) -> int:
    return value if isinstance(value, int) else 0


def as_seconds(value: object) -> float:
    if isinstance(value, int | float) and 0.0 <= value < _YEAR_9999:
        return float(value)
    return 0.0


_MOST_READ = 1000
"""Characters of a text that its title is looked for in: the screen asks for it at every tick."""


def title_of(text: str) -> str:
    """Title of a chat, from its first question; files are named without their @.

    Where that is what a command wrote alone, it is the command.
    """
    text = text.lstrip()[:_MOST_READ]
    return first_line(_MENTION.sub("", _OUTPUT.sub("", text))) or "".join(_OUTPUT.findall(text)[:1])


def first_line(text: str) -> str:
    """First line of a text that is not blank, cut to the length of a title."""
    line = next(iter(text.lstrip()[:_MOST_READ].splitlines()), "").strip()
    return line if len(line) <= _TITLE_LENGTH else f"{line[: _TITLE_LENGTH - 1]}…"


def linked(messages: Sequence[Saved]) -> list[Saved]:
    """Messages of a chat in order, each of which follows an earlier one or none.

    In a damaged file the message that one followed may be missing: it then follows the last one.
    """
    known = {0}
    last = 0
    found: list[Saved] = []
    for message in messages:
        is_known = message.parent in known
        found.append(message if is_known else replace(message, parent=last))
        last = message.number
        known.add(last)
    return found


def shown_path(messages: Sequence[Saved], first: int) -> list[Saved]:
    """The messages shown, the first question first; first: the version of it that is shown."""
    following: dict[int, dict[int, Saved]] = {}
    for message in linked(messages):
        following.setdefault(message.parent, {})[message.number] = message
    path: list[Saved] = []
    parent, wanted = 0, first
    while versions := following.pop(parent, None):  # once each: a message may follow itself
        shown = versions.get(wanted) or versions[max(versions)]
        path.append(shown)
        parent, wanted = shown.number, shown.shown
    return path
