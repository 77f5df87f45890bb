"""Reads and checks text of arguments, files, pipes and a prompt."""

import contextlib
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.named_files import names_in, picture_in
from app.cli.terminal import stderr
from app.documents.document import MOST_BYTES, read, read_bytes
from app.documents.folders import is_file
from backends.base import SpecchatError, UsageError
from backends.base.safe_files import (
    NotRegularError,
    NotTextError,
    TooLargeError,
    open_regular,
    text_of,
)


def gather(prompt: str | None, files: Sequence[Path]) -> str:
    """Join the prompt and piped text; files: what may be asked about without either.

    Raises:
        UsageError: the question is empty, or part of it is not text.
    """
    parts: list[str] = []
    if prompt not in (None, "-"):
        parts.append(check(prompt, "the prompt"))
        for name in filter(is_file, names_in(prompt)):  # a script may put foreign text there
            stderr.note(f"note: @{name} stays text; --file adds the file")
    if prompt in (None, "-") or not sys.stdin.isatty():
        parts.append(_standard_input(required=prompt == "-" or (prompt is None and not files)))
    text = "\n\n".join(part for part in parts if part.strip())
    if not (text or files):
        raise UsageError("there is no question", "the prompt is empty", 'Try: specchat ask "Why?"')
    return text


def predicted(path: Path) -> str:
    """A text that is only expected to come: what is no text in it is replaced, and ignored.

    Raises:
        UsageError: the file cannot be read.
    """
    with _reading(path, "--predict"), open_regular(path) as file:
        text = file.read(MOST_BYTES).decode("utf-8-sig", errors="replace")
    return text.replace("\r\n", "\n")


@contextmanager
def _only_text(source: str) -> Generator[None]:
    """Turn what is no text, or too much, into errors that name it."""
    try:
        yield
    except NotTextError as error:
        raise UsageError(f"{source} {error.fault}", error.why) from error
    except TooLargeError as error:
        raise UsageError(f"{source} is too large", f"over {MOST_BYTES >> 20} MB") from error


def check(text: str, source: str) -> str:
    """Return the text if it has no NUL character and no unpaired surrogate.

    Raises:
        UsageError: it has one.
    """
    position = text.find("\0")
    if position >= 0:
        raise UsageError(f"{source} is not text", f"a NUL character at position {position:,}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{source} is not valid Unicode", f"an unpaired surrogate at position {error.start:,}"
        ) from error
    return text


def _standard_input(*, required: bool) -> str:
    if sys.stdin.isatty():
        if required:
            raise UsageError(
                "there is no question", "no prompt was given", 'Try: specchat ask "Why is…"'
            )
        return ""
    stderr.status("reading standard input")
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    stderr.clear_status()
    with _only_text("standard input"):
        return read_bytes(data).text.rstrip("\n")


def attached(path: Path) -> Attachment:
    """A file of --file.

    Raises:
        UsageError: it cannot be read.
    """
    remedy = "Pipe its text in: COMMAND | specchat ask"
    with _reading(path, "--file", remedy):
        if picture := picture_in(path):
            return Attachment.of_image(str(path), picture)
        return Attachment(AttachmentKind.FILE, str(path), read(path).text)


@contextmanager
def _reading(path: Path, option: str, remedy: str = "") -> Generator[None]:
    """Turn what can go wrong while a file is read into errors that name it."""
    if path.is_dir():
        remedy = f"--folder {path}" * (option == "--file")
        raise UsageError(f"{path} is a folder", f"{option} takes one file at a time", remedy)
    try:
        with _only_text(str(path)):
            yield
    except NotRegularError as error:
        raise UsageError(f"cannot read {path}", "it is a pipe or a device", remedy) from error
    except OSError as error:
        raise UsageError(f"cannot read {path}", error.strerror or str(error)) from error


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
        return check(line, "the message")

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
    with _only_text(f"line {number} of standard input"):
        return text_of(line.rstrip(b"\r\n"))
