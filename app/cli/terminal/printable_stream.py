"""A text stream that lets only specchat itself write control sequences."""

from collections.abc import Iterable
from typing import Any, TextIO

from app.printable import printable


class PrintableStream:
    """Makes all output printable: that of commands, libraries, warnings and Python itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def drive(self, sequence: str) -> None:
        """Write one of specchat's own control sequences."""
        self._stream.write(sequence)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # click would write to it where the encoding is ASCII
            raise AttributeError(name)
        return getattr(self._stream, name)


def printable_stream(stream: TextIO | PrintableStream) -> PrintableStream:
    """The stream itself if it is printable already, else a wrapper of it."""
    return stream if isinstance(stream, PrintableStream) else PrintableStream(stream)
