"""The text of a file, of whatever kind."""

import atexit
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any

import regex

from backends.base.safe_files import NotTextError, TooLargeError, read_bounded, text_of

if TYPE_CHECKING:
    from backends.base.watched_process import WatchedProcess


# Bytes as text, in whichever encoding they are.

_BOMS = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_BINARY = re.compile(rb"[\0-\x06\x0e-\x19\x1c-\x1f]")
"""Bytes that no text has in an encoding that extends ASCII."""

_LIKELY = (
    "cp1252", "cp1250", "cp1251", "koi8_r", "cp932", "gb18030", "euc_jp", "big5", "cp949",
    "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2", "tis_620",
)  # fmt: skip
"""Encodings of files; of two that fit as well the earlier is the likelier."""

_UNLIKELY = regex.compile(
    r"\p{Ll}\p{Lu}"  # an upper case letter within a word
    r"|[\u0080-\u024f\u2010-\u203a]{3}|[\uff61-\uff9f]"  # rows of accents, half-width katakana
    r"|[A-Za-z][\u0370-\u04ff]|[\u0370-\u04ff][A-Za-z]"  # scripts mixed in a word
)
_SAMPLE_BYTES = 1 << 16


def decoded(data: bytes) -> str:
    r"""A text with \n for \r\n.

    By a byte order mark; else UTF-8, a few bytes of which may be damaged; else by its letters.

    Raises:
        NotTextError: the bytes are no text.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            text = _in(encoding, data)
            if text is None or "\0" in text:
                raise NotTextError("is not text", f"it is marked as {encoding}, and is not")
            return text
    try:
        return text_of(data)
    except NotTextError as error:
        if binary := _BINARY.search(data):
            where = f"byte {data[binary.start()]:#04x} at position {binary.start():,}"
            raise NotTextError("is not text", where) from error
    text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    if text.count("\ufffd") * 20 < len(text) - len(text.encode("ascii", "ignore")):
        return text
    for encoding in _fitting(data):
        if (text := _in(encoding, data)) is not None:
            return text
    raise NotTextError("is not text", "no known encoding fits its bytes")


def _in(encoding: str, data: bytes) -> str | None:
    try:
        return data.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None


def _fitting(data: bytes) -> Iterator[str]:
    """Encodings in which some bytes are words, the likeliest first.

    A detector rates them. Where several seem right, letters that are not together in words tell,
    then how frequent letters are in a language, then how common the encoding is.
    """
    from charset_normalizer import from_bytes

    first = re.search(rb"[\x80-\xff]", data)
    start = data.rfind(b"\n", 0, first.start() if first else 0) + 1
    sample = data[start : start + _SAMPLE_BYTES]
    if len(sample) == _SAMPLE_BYTES:  # to the end of a line, so that no character is cut
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    rated: list[tuple[float, int, float, int]] = []
    for match in from_bytes(sample, cp_isolation=list(_LIKELY)):
        unlikely = len(_UNLIKELY.findall(str(match)))
        places = [_LIKELY.index(one) for one in match.could_be_from_charset if one in _LIKELY]
        rated += [(round(match.chaos, 1), unlikely, -match.coherence, place) for place in places]
    return (_LIKELY[place] for *_, place in sorted(rated))


MOST_BYTES = 50 << 20
MOST_CHARACTERS = 4_000_000
"""Of a file's text: more than the context of a model holds."""

SECONDS, MOST_MEMORY = 10.0, 500_000_000
"""What a file may cost to read, beside the start of the process that reads it."""

_START_SECONDS = 60.0
_IDLE_SECONDS = 30.0
"""That process then gives its memory back."""

_MARKS = (b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""How PDF files, archives of parts (docx, odt, epub...) and files of old Office begin."""

_ENDINGS = (".pdf", ".html", ".htm", ".xhtml")


@dataclass(frozen=True, slots=True)
class Document:
    """A file as the model reads it.

    text: each page but the last ends with a form feed. pages: 0 where it has none.
    """

    text: str
    pages: int = 0


def read(path: Path) -> Document:
    """The text of a file; one that takes a process to read is read once, until it changes.

    Raises:
        NotTextError: it has no text that can be read; its fault says why.
        TooLargeError, OSError: it cannot be read.
    """
    data = read_bounded(path, MOST_BYTES)
    if _is_plain(data, path.name):
        return read_bytes(data, path.name)
    state = path.stat()
    with _READING:  # who asks for the same file meanwhile waits for it
        found = _of_state(path.absolute(), state.st_mtime_ns, state.st_size, state.st_ino)
    if isinstance(found, NotTextError):
        raise found
    return found


def read_bytes(data: bytes, name: str = "") -> Document:
    """As read, of a file that came another way. name: its ending tells HTML from text.

    Raises:
        NotTextError, TooLargeError: as for read.
    """
    if len(data) > MOST_BYTES:
        raise TooLargeError(Path(name), MOST_BYTES)
    if not _is_plain(data, name):
        answer = _CHILD.ask(data, name)
        return Document(answer["text"], answer["pages"])
    text = decoded(data)
    if len(text) > MOST_CHARACTERS:
        raise NotTextError(f"has over {MOST_CHARACTERS // 10**6} million characters", "")
    return Document(text)


def page_picture(path: Path, page: int) -> bytes:
    """A page of a PDF file, from 1, as a PNG picture with 1,500 pixels on its longer side.

    Raises:
        NotTextError, TooLargeError, OSError: as for read.
    """
    return bytes.fromhex(_CHILD.ask(read_bounded(path, MOST_BYTES), path.name, page)["picture"])


def fault_of(error: Exception) -> str:
    """Why a file cannot be read, in words that follow its name."""
    if isinstance(error, NotTextError):
        return error.fault
    if isinstance(error, TooLargeError):
        return f"is larger than {MOST_BYTES >> 20} MB"
    return f"cannot be read: {getattr(error, 'strerror', '') or error}"


_READING = Lock()


@lru_cache(32)
def _of_state(path: Path, *_state: int) -> Document | NotTextError:
    """A file that has this state. Faults are kept too: one that hangs its reader does so once."""
    try:
        return read_bytes(read_bounded(path, MOST_BYTES), path.name)
    except NotTextError as error:
        return error


def _is_plain(data: bytes, name: str) -> bool:
    return not (data.startswith(_MARKS) or name.lower().endswith(_ENDINGS))


class _Child:
    """Reads files in a child process, one after the other. One that fails is replaced."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: WatchedProcess | None = None
        self._idle: Timer | None = None
        atexit.register(self._end)  # without the lock: whoever reads is not waited for

    def ask(self, data: bytes, name: str, page: int = 0) -> dict[str, Any]:
        """What the child answers about a file. page: a picture of it is wanted.

        Raises:
            NotTextError: it cannot be read.
        """
        from backends.base.watched_process import StoppedError

        request = {"name": name, "bytes": len(data), "page": page, "characters": MOST_CHARACTERS}
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            try:
                process = self._started()
                process.send(request, data)
                answer: dict[str, Any] = json.loads(process.line(SECONDS, MOST_MEMORY))
            except (OSError, StoppedError, ValueError) as error:
                self._end()
                why, _, details = str(error).partition(": ")
                raise NotTextError(f"cannot be read: {why}", details) from error
            except BaseException:  # Ctrl-C; its answer is not to be taken for the next one
                self._end()
                raise
            if answer.get("ends"):
                self._end()
            self._idle = Timer(_IDLE_SECONDS, self.close)
            self._idle.daemon = True
            self._idle.start()
        if "error" in answer:
            raise NotTextError(answer["error"], answer["why"])
        return answer

    def _started(self) -> "WatchedProcess":
        from backends.base.watched_process import WatchedProcess

        if self._process is None:
            self._process = WatchedProcess("app.documents.worker")
            self._process.send({"memory": MOST_MEMORY})
            self._process.line(_START_SECONDS, MOST_MEMORY)
        return self._process

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


_CHILD = _Child()
