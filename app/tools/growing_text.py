"""Text that grows while it is read: what is decided never depends on how it was cut."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.tools.events import Delta

_Value = TypeVar("_Value")

Reading = Generator[None, None, _Value]
"""Waits for more text at each yield."""


@dataclass(slots=True)
class GrowingText:
    """The text that was not read yet. has_ended: no more will come. taken: characters read."""

    rest: str = ""
    has_ended: bool = False
    taken: int = 0

    def take(self, count: int) -> str:
        taken, self.rest = self.rest[:count], self.rest[count:]
        self.taken += len(taken)
        return taken

    def give_back(self, text: str) -> None:
        """Make text that was taken last the next one to be read."""
        self.rest = text + self.rest
        self.taken -= len(text)

    def opening(self, texts: Sequence[str]) -> Reading[str]:
        """The longest of these texts that follows, after any white space; "" if none does.

        Nothing is taken.
        """
        while True:
            body = self.rest.lstrip()
            is_open = any(text.startswith(body) and text != body for text in texts)
            if self.has_ended or not is_open:
                return max((text for text in texts if body.startswith(text)), key=len, default="")
            yield

    def take_opening(self, text: str) -> str:
        """Take a text that follows, and the white space before it."""
        return self.take(self.rest.index(text) + len(text))

    def skip(self, text: str) -> Reading[bool]:
        """Take a text that follows, and the white space before it; whether it does."""
        follows = bool((yield from self.opening((text,))))
        if follows:
            self.take_opening(text)
        return follows

    def skip_space(self) -> Reading[str]:
        skipped = ""
        while True:
            skipped += self.take(len(self.rest) - len(self.rest.lstrip()))
            if self.rest or self.has_ended:
                return skipped
            yield

    def until(
        self, texts: Sequence[str], told: Callable[[str], Delta | None], held: str | None = None
    ) -> "Generator[Delta | None, None, Found]":
        """Tell of the text before the first of these, as it comes; None where more is awaited.

        held: what is not told before the text that is found, but part of what is found: None for
        all white space, or one character, of which one is held.
        """
        while True:
            found = min(
                ((at, text) for text in texts if (at := self.rest.find(text)) >= 0), default=None
            )
            if found is not None:
                at, text = found
                before = _without_end(self.rest[:at], held)
                self.take(len(before))  # first: who gets it may ask how much was taken
                if before and (delta := told(before)):
                    yield delta
                return Found(text, self.take_opening(text))
            if self.has_ended:
                if self.rest and (delta := told(self.take(len(self.rest)))):
                    yield delta
                return Found("", "")
            safe = len(self.rest) - possible_start(self.rest, texts)
            safe = len(_without_end(self.rest[:safe], held))
            if safe and (delta := told(self.take(safe))):
                yield delta
            yield None


@dataclass(frozen=True, slots=True)
class Found:
    """A text that was found, "" if the end came; taken: all that was read for it."""

    text: str
    taken: str


def _without_end(text: str, held: str | None) -> str:
    return text.rstrip() if held is None else text.removesuffix(held)


def possible_start(text: str, texts: Sequence[str]) -> int:
    """Number of characters at the end that could begin one of the texts."""
    longest = max(map(len, texts)) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(other.startswith(text[-size:]) for other in texts):
            return size
    return 0
