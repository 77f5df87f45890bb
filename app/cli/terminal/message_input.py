"""Messages of a conversation, typed at a prompt or read from a pipe."""

import contextlib
import sys
from collections.abc import Iterator

from app.cli.terminal import stderr, text_input
from backends.base import SpecchatError

_FENCE = '"""'


class LineDroppedError(Exception):
    """Ctrl-C took back what was being typed; it can be fetched again from the history."""


class TypedLines:
    """Lines typed at a prompt; they go on after one that is refused.

    A text pasted at once is one line, whatever line ends are in it.
    """

    def __init__(self) -> None:
        self.prompt = "> "
        self._readline = None
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
        """Keep a text that Ctrl-C took off the prompt; the Up key fetches it.

        Raises:
            LineDroppedError: there was such a text.
        """
        self.prompt = "> "
        if text.strip() and self._readline:
            self._readline.add_history(text)
            stderr.note("\nTaken back; the Up key fetches it.")
            raise LineDroppedError


def piped_lines() -> Iterator[str]:
    """Lines of standard input; they go on after one that is refused."""
    return map(_decoded, enumerate(sys.stdin.buffer, start=1))


def read_messages(lines: Iterator[str]) -> Iterator[str]:
    """Messages as they are entered: a line each, or the lines between two of triple quotes."""
    for line in lines:
        yield _block(lines) if line.strip() == _FENCE else line.strip()


def _block(lines: Iterator[str]) -> str:
    """The lines up to the closing quotes; one that is refused refuses the block, to its end."""
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
