"""Reads messages of a conversation from a prompt or a pipe."""

import contextlib
import sys
from collections.abc import Iterator

from app.cli.terminal import stderr, text_input
from backends.base import SpecchatError

_FENCE = '"""'


class LineDroppedError(Exception):
    """Ctrl-C removed the typed line; it is kept in the input history."""


class TypedLines:
    """Lines typed at a prompt; the iterator continues after a rejected one.

    Pasted text is one line, whatever line ends it contains.
    """

    def __init__(self) -> None:
        self.prompt = "> "
        self._readline = None
        if sys.platform != "win32":
            with contextlib.suppress(ImportError):
                import readline

                self._readline = readline
                readline.parse_and_bind("set enable-bracketed-paste on")
                readline.parse_and_bind(r'"\e\C-m": accept-line')  # Enter after a lone Esc

    def __iter__(self) -> "TypedLines":
        return self

    def __next__(self) -> str:
        try:
            line = input(self.prompt)
        except EOFError:
            stderr.note("")
            raise StopIteration from None
        except KeyboardInterrupt:
            self.take_back(self._readline.get_line_buffer() if self._readline else "")
            raise
        return text_input.check(line, "the message")

    def take_back(self, text: str) -> None:
        """Add a line that Ctrl-C removed to the input history.

        Raises:
            LineDroppedError: the line was not empty.
        """
        self.prompt = "> "
        if text.strip() and self._readline:
            self._readline.add_history(text)
            stderr.note("\nRemoved; press Up to get it back.")
            raise LineDroppedError


def piped_lines() -> Iterator[str]:
    """Lines of standard input; the iterator continues after a rejected one."""
    return map(_decoded, enumerate(sys.stdin.buffer, start=1))


def read_messages(lines: Iterator[str]) -> Iterator[str]:
    """Messages: one line each, or the lines between two lines of triple quotes."""
    for line in lines:
        yield _block(lines) if line.strip() == _FENCE else line.strip()


def _block(lines: Iterator[str]) -> str:
    """Read to the closing quotes; one rejected line rejects the whole block."""
    block: list[str] = []
    refusal: SpecchatError | None = None
    if isinstance(lines, TypedLines):
        lines.prompt = "… "
    while True:
        try:
            line = next(lines, _FENCE)
        except SpecchatError as error:
            refusal = refusal or error
            continue
        except (KeyboardInterrupt, LineDroppedError):
            if isinstance(lines, TypedLines):
                lines.take_back("\n".join(block))
            raise
        if line.strip() == _FENCE:
            break
        block.append(line)
    if isinstance(lines, TypedLines):
        lines.prompt = "> "
    if refusal is not None:
        raise refusal
    return "\n".join(block)


def _decoded(numbered_line: tuple[int, bytes]) -> str:
    number, line = numbered_line
    return text_input.decode(line.rstrip(b"\r\n"), f"line {number} of standard input")
