"""What the history holds: chats, and the messages of each."""

from dataclasses import dataclass

_TITLE_LENGTH = 60


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


@dataclass(frozen=True, slots=True)
class Saved:
    """One message as it was last saved; an answer cut short has no ending."""

    number: int
    role: str
    text: str
    ending: str
    created: float


def title_of(text: str) -> str:
    """What a chat is called by its first question."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _TITLE_LENGTH else f"{line[: _TITLE_LENGTH - 1]}…"
