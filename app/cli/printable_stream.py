"""A stream onto a terminal that nobody but specchat itself can drive."""

from collections.abc import Iterable
from typing import Any, TextIO

from app.printable import printable


class PrintableStream:
    """Makes printable what anyone writes: commands, libraries, warnings, Python itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def drive(self, sequence: str) -> None:
        """Write a control sequence of our own."""
        self._stream.write(sequence)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # click would write to it where the encoding is ASCII
            raise AttributeError(name)
        return getattr(self._stream, name)
